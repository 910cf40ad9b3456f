onmessage = ({ data: { timer, milliseconds } }) => {
  setTimeout(() => postMessage(timer), milliseconds);
};
