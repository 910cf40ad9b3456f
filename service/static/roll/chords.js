/** Draws the chord names of a take at the top of the roll, as many as fit, until the take is edited. */
export function drawChords(context, { keys, width, top, x }, { chords, revision }, palette) {
  if (chords?.revision !== revision) return;
  context.font = `600 13px ${palette.font}`;
  let free = keys; // leftmost position of the next name
  for (const { time_s, name } of chords.names) {
    const at = x(time_s) + 3;
    const room = context.measureText(name).width;
    if (at < free || at + room > width) continue;
    context.fillStyle = palette.surface;
    context.fillRect(at - 2, top + 2, room + 4, 18);
    context.fillStyle = palette.strong;
    context.fillText(name, at, top + 11);
    free = at + room + 6;
  }
}
