/** Names that the browser has and TypeScript's library lacks. */

interface Event {
  /** Set by the page's own CustomEvents. */
  detail?: any;
}

interface Navigator {
  /** Only in Safari. */
  readonly audioSession?: { type: string };
}

/** The scope of an audio worklet. */
declare const sampleRate: number;
declare class AudioWorkletProcessor {
  readonly port: MessagePort;
}
declare function registerProcessor(name: string, processor: typeof AudioWorkletProcessor): void;
