/** The processes of the shop, with the faults that can be injected into each. */
import { html } from "/static/js/lib/html.js";
import { Badge, Empty, Time } from "/static/js/lib/states.js";
import { Table } from "/static/js/lib/table.js";

const STATES = {
  starting: "info", running: "good", stopped: "warn", restarting: "bad", down: "bad", finished: "plain",
};

/** `path`: of the control API. `fits`: the states in which the button makes sense. */
const ACTIONS = [
  { path: "kill", label: "Kill", title: "kill -9; it is started again", done: "killed", fits: ["starting", "running", "stopped"] },
  { path: "stop", label: "Stop", title: "SIGSTOP: it hangs, its connections stay open", done: "stopped", fits: ["running"] },
  { path: "continue", label: "Continue", title: "SIGCONT", done: "continues", fits: ["stopped"] },
  { path: "end", label: "End", title: "It is ended and stays down", done: "ended", fits: ["starting", "running"] },
  { path: "start", label: "Start", title: "Start it now", done: "started", fits: ["down", "restarting", "finished"] },
];

/**
 * @param {object} props
 * @param {{name: string, state: string, pid: number|null, restarts: number, since: string, last_exit: string|null}[]} props.processes
 * @param {(name: string, action: typeof ACTIONS[number]) => void} props.act
 */
export function Processes({ processes, act }) {
  const columns = [
    { id: "name", label: "Process", main: true },
    { id: "state", label: "State", render: (row) => html`<${Badge} kind=${STATES[row.state] ?? "plain"}>${row.state}<//>` },
    { id: "actions", label: "Fault", render: (row) => html`<span class="row-actions">${buttons(row, act)}</span>` },
    { id: "since", label: "Since", render: (row) => html`<${Time} ms=${row.since} relative />` },
    { id: "restarts", label: "Restarts", number: true },
    { id: "pid", label: "Process id", number: true },
    { id: "last_exit", label: "Last end" },
  ];
  return html`<${Table} label="Processes" columns=${columns} rows=${processes} rowKey=${(row) => row.name} empty=${html`<${Empty} title="No processes" />`} />`;
}

function buttons(row, act) {
  // The gateway serves this page: only a kill, after which it comes back by itself, leaves a page to click on.
  const offered = ACTIONS.filter((action) => action.fits.includes(row.state) && (row.name !== "gateway" || action.path === "kill"));
  return offered.map((action) => html`<button key=${action.path} type="button" title=${action.title} aria-label=${`${action.label} ${row.name}`} onClick=${() => act(row.name, action)}>${action.label}</button>`);
}
