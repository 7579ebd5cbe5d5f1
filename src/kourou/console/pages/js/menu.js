/** The pages: their paths, modules, places in the menu and keys. A page is js/pages/NAME.js. */

/**
 * `key`: after g. `role`: not in the menu of those whose role does not include it.
 * @type {{section: string, items: {page: string, path: string, key: string, role?: "operator"|"administrator"}[]}[]}
 */
export const MENU = [
  {
    section: "cluster",
    items: [
      { page: "overview", path: "/", key: "o" },
      { page: "brokers", path: "/brokers", key: "b" },
      { page: "namesrvs", path: "/namesrvs", key: "n" },
      { page: "doctor", path: "/doctor", key: "x" },
    ],
  },
  {
    section: "messaging",
    items: [
      { page: "topics", path: "/topics", key: "t" },
      { page: "groups", path: "/groups", key: "g" },
      { page: "producers", path: "/producers", key: "p" },
      { page: "messages", path: "/messages", key: "m" },
      { page: "dead-letters", path: "/dead-letters", key: "d" },
      { page: "trace", path: "/trace", key: "r" },
      { page: "delayed", path: "/delayed", key: "h" },
    ],
  },
  {
    section: "operations",
    items: [
      { page: "access", path: "/access", key: "a", role: "operator" },
      { page: "pipelines", path: "/pipelines", key: "s" },
      { page: "audit", path: "/audit", key: "l", role: "administrator" },
    ],
  },
];

/** Every path: `page` names the module; `menu` the item that is marked. The variables become the page's params. */
export const ROUTES = [
  ...MENU.flatMap(({ items }) => items.map(({ page, path }) => ({ pattern: path, page, menu: page }))),
  { pattern: "/brokers/{name}/{id}", page: "broker", menu: "brokers" },
  { pattern: "/topics/{topic}", page: "topic", menu: "topics" },
  { pattern: "/groups/{group}", page: "group", menu: "groups" },
  { pattern: "/groups/{group}/clients/{client}", page: "client", menu: "groups" },
  { pattern: "/messages/{topic}/{id}", page: "message", menu: "messages" },
  { pattern: "/login", page: "login", menu: null },
];
