/**
 * Set the purpose of the page's sound: "playback", "play-and-record" or "auto". With "auto", an iPhone
 * whose silent switch is on plays nothing. Only Safari has this setting.
 */
export function setAudioSession(type) {
  if (navigator.audioSession) navigator.audioSession.type = type;
}
