"""Tests of the archive of takes in the browser: writes, deletion, and full storage."""

from tests.service.page.browser import Tab

DELETED_DURING_A_WRITE = """async () => {
  const { Archive } = await import('./state/archive.js');
  const { LiveRecording } = await import('./audio/recording.js');
  const { Take } = await import('./notes/take.js');
  const database = await new Promise((resolve) => {
    const request = indexedDB.open('takes', 1);
    request.onupgradeneeded = () => {
      for (const name of ['takes', 'audio']) request.result.createObjectStore(name);
    };
    request.onsuccess = () => resolve(request.result);
  });
  const parts = () => new Promise((resolve) => {
    const request = database.transaction('audio').objectStore('audio').count();
    request.onsuccess = () => resolve(request.result);
  });
  const take = new Take('');
  const blobs = Array.from({ length: 300 }, () => new Blob([new Uint8Array(2)]));
  take.recording = LiveRecording.of(8000, blobs);
  take.finish();
  const archive = new Archive();
  archive.follow(take, true);
  while (await parts() === 0) await new Promise((resolve) => setTimeout(resolve, 5));
  await archive.delete(take);
  const atDeletion = await parts();
  await new Promise((resolve) => setTimeout(resolve, 500));
  return [atDeletion, await parts()];
}"""


def test_take_that_is_deleted_during_a_write_leaves_no_audio(bench: Tab) -> None:
    assert bench.run(DELETED_DURING_A_WRITE) == [0, 0]


RENAMED_DURING_A_WRITE = """async () => {
  const { Archive } = await import('./state/archive.js');
  const { Take } = await import('./notes/take.js');
  const take = new Take('old');
  take.finish();
  const { put } = IDBObjectStore.prototype;
  IDBObjectStore.prototype.put = function (...values) {
    IDBObjectStore.prototype.put = put;
    const request = put.apply(this, values);
    take.rename('new');
    return request;
  };
  const archive = new Archive();
  archive.follow(take, true);
  await new Promise((resolve) => archive.addEventListener('kept', resolve, { once: true }));
  const isKept = take.kept;
  while (!take.kept) await new Promise((resolve) => setTimeout(resolve, 5));
  const names = (await new Archive().load()).map(({ name }) => name);
  await archive.delete(take);
  return [isKept, names];
}"""


def test_take_that_is_renamed_during_a_write_is_written_again(bench: Tab) -> None:
    assert bench.run(RENAMED_DURING_A_WRITE) == [False, ["new"]]


RESTORED_PEDAL = """async () => {
  const { Archive } = await import('./state/archive.js');
  const { Take } = await import('./notes/take.js');
  const take = new Take('crashed');
  take.noteOn(0, { pitch: 60, velocity: 80, confidence: 1 }, 1);
  take.pedalMoved(true, 1.5);
  take.advance(2);
  const archive = new Archive();
  archive.follow(take);
  document.dispatchEvent(new Event('visibilitychange'));
  await new Promise((resolve) => archive.addEventListener('kept', resolve, { once: true }));
  const [{ notes, pedal }] = await new Archive().load();
  await archive.delete(take);
  return [notes[0].offset, pedal[0].offset];
}"""


def test_restored_take_has_no_open_notes_or_pedal(bench: Tab) -> None:
    assert bench.run(RESTORED_PEDAL) == [2, 2]


WRITTEN_WHEN_SPACE_IS_FREE = """async () => {
  const { Archive } = await import('./state/archive.js');
  const { LiveRecording } = await import('./audio/recording.js');
  const { Take } = await import('./notes/take.js');
  const [large, small] = ['large', 'small'].map((name) => {
    const take = new Take(name);
    const part = new Blob([new Uint8Array(2)]);
    if (name === 'large') Object.defineProperty(part, 'size', { value: 999_999_999 });
    take.recording = LiveRecording.of(8000, [part]);
    return take;
  });
  const archive = new Archive();
  const written = (take) => new Promise((resolve) => {
    for (const type of ['kept', 'trouble']) archive.addEventListener(type, resolve, { once: true });
    take.finish();
    archive.follow(take, true);
  });
  await written(large);
  await written(small);
  const isKept = small.kept;
  await archive.delete(large);
  while (!small.kept) await new Promise((resolve) => setTimeout(resolve, 5));
  const [{ recording }] = await new Archive().load();
  await archive.delete(small);
  return [isKept, recording !== null];
}"""


WRITTEN_WHILE_GROWING = """async () => {
  const { Archive } = await import('./state/archive.js');
  const { LiveRecording } = await import('./audio/recording.js');
  const { Take } = await import('./notes/take.js');
  const take = new Take('');
  take.recording = new LiveRecording(8000);
  take.recording.add(new ArrayBuffer(16000), 8000);
  const archive = new Archive();
  archive.follow(take, true);
  await new Promise((resolve) => archive.addEventListener('kept', resolve, { once: true }));
  const [{ recording }] = await new Archive().load();
  await archive.delete(take);
  return recording.seconds;
}"""


def test_newest_sound_of_a_growing_take_is_written(bench: Tab) -> None:
    assert bench.run(WRITTEN_WHILE_GROWING) == 1


def test_sound_is_written_when_space_is_free(bench: Tab) -> None:
    assert bench.run(WRITTEN_WHEN_SPACE_IS_FREE) == [False, True]
