/**
 * The element with this id. The caller knows its type from the page's HTML.
 * @type {(id: string) => any}
 */
export const $ = (id) => document.getElementById(id);
