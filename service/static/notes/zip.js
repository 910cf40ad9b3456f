/**
 * A ZIP archive of stored (not compressed) files, as PKWARE's APPNOTE describes it: MIDI is small
 * and recorded sound would hardly shrink.
 */

const CRC_POLYNOMIAL = 0xedb88320; // CRC-32 of IEEE 802.3, bits reversed
const VERSION = 20; // needed to extract: 2.0
const UTF8_NAMES = 0x0800;
const LIMIT = 0xffffffff; // beyond it ZIP64 would be needed

const TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let value = byte;
  for (let bit = 0; bit < 8; bit += 1) value = (value >>> 1) ^ (value & 1 ? CRC_POLYNOMIAL : 0);
  return value;
});

async function crc32(blob) {
  let crc = 0xffffffff;
  const reader = blob.stream().getReader();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return (crc ^ 0xffffffff) >>> 0;
    for (const byte of value) crc = (crc >>> 8) ^ TABLE[(crc ^ byte) & 0xff];
  }
}

/** `files`: [{name, blob}], names unique. Throws an Error if the archive would pass 4 GiB. */
export async function zip(files, date = new Date()) {
  const parts = [];
  const directory = [];
  let offset = 0;
  for (const { name, blob } of files) {
    const bytes = new TextEncoder().encode(name);
    const common = [
      [2, VERSION], [2, UTF8_NAMES], [2, 0], [2, dosTime(date)], [2, dosDate(date)],
      [4, await crc32(blob)], [4, blob.size], [4, blob.size], [2, bytes.length], [2, 0],
    ];
    const local = fields([[4, 0x04034b50], ...common]);
    const place = [[2, 0], [2, 0], [2, 0], [4, 0], [4, offset]]; // comment, disk, attributes
    parts.push(local, bytes, blob);
    directory.push(fields([[4, 0x02014b50], [2, VERSION], ...common, ...place]), bytes);
    offset += local.length + bytes.length + blob.size;
    if (offset > LIMIT) throw new Error("These takes are too large for one ZIP file.");
  }
  const size = directory.reduce((sum, { length }) => sum + length, 0);
  const count = [2, files.length];
  const end = [[4, 0x06054b50], [2, 0], [2, 0], count, count, [4, size], [4, offset], [2, 0]];
  return new Blob([...parts, ...directory, fields(end)], { type: "application/zip" });
}

/** Little-endian numbers, given as [bytes, value]. */
function fields(list) {
  return Uint8Array.from(
    list.flatMap(([size, value]) => Array.from({ length: size }, (_, i) => (value >>> (8 * i)) & 0xff)),
  );
}

const dosTime = (date) =>
  (date.getHours() << 11) | (date.getMinutes() << 5) | (date.getSeconds() >> 1);

const dosDate = (date) =>
  ((date.getFullYear() - 1980) << 9) | ((date.getMonth() + 1) << 5) | date.getDate();
