/** Names that the browser has and TypeScript's library lacks. */

interface Event {
  /** Set by the page's own CustomEvents. */
  detail?: any;
}

/** The scope of an audio worklet. */
declare const sampleRate: number;
declare class AudioWorkletProcessor {
  readonly port: MessagePort;
}
declare function registerProcessor(name: string, processor: typeof AudioWorkletProcessor): void;
