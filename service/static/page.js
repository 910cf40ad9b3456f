/**
 * The element with this id. Its type is the caller's business: the page's own HTML has it.
 * @type {(id: string) => any}
 */
export const $ = (id) => document.getElementById(id);
