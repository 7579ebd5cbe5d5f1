/** The two ways in which a change of the database and its message become one: measured, and in words. */
import { html } from "/static/js/lib/html.js";
import { useLive } from "/static/js/lib/api.js";
import { duration, number } from "/static/js/lib/format.js";
import { Card, Note, PageHead } from "/static/js/lib/states.js";
import { Loaded } from "./trouble.js";
import { WAYS } from "./words.js";

const MEASURES = [
  { id: "orders", label: "Orders", format: number },
  { id: "events", label: "Messages", format: number },
  { id: "stored_p50_ms", label: "Event to stored message, median", format: duration },
  { id: "stored_p99_ms", label: "… 99th percentile", format: duration },
  { id: "callback_p50_ms", label: "Callback answered, median", format: duration },
  { id: "callback_p99_ms", label: "… 99th percentile", format: duration },
  { id: "check_backs", label: "Check-backs", format: number },
  { id: "repeats", label: "Messages sent twice", format: number },
  { id: "waiting", label: "Rows waiting for the relay", format: number },
];

const WORDS = [
  ["What happens", "The work is a database transaction. Before its commit a half message is stored at the broker, and a row that names it; after the commit the message is released.", "The message is a row of the same database transaction. A relay reads the rows, sends them and deletes them."],
  ["What it needs", "A broker with transaction messages, and a producer that answers check-backs.", "A table, and one more process: the relay. Any broker will do."],
  ["When the broker is away", "The work is rolled back, and has to be tried again.", "The work is done; its message waits in the table."],
  ["When the service dies in between", "The broker checks back seconds later; the row says whether the work was committed.", "The row is there, or the work is not; the relay sends what is there."],
  ["Delay of the message", "One request after the commit.", "Until the relay has read the row: milliseconds, by a notification of the database."],
  ["Sent twice", "Not by a crash of the service: one half message has one end.", "By a crash of the relay between sending and deleting. Idempotent producers prevent most repeats; the inbox skips the rest."],
  ["Order of messages", "As the half messages were released.", "As committed, for each order: no row overtakes a transaction that is still open."],
  ["Work of the database", "One small row for each message.", "One row with the whole message: inserted, read, deleted."],
];

export function ComparePage() {
  const read = useLive("/compare", 2);
  return html`<div class="contents">
    <${PageHead} title="Two ways" subtitle="A change of the database and its message have to happen both or not at all. The shop does it in two ways, side by side." />
    <${Loaded} read=${read}>${(data) => html`<${Card} flush title="Measured" actions=${html`<span class="muted">${span(data)}</span>`}><${Measured} data=${data} /><//>`}<//>
    <${Card} flush title="In words">
      <div class="table-scroll" tabIndex="0" role="region" aria-label="The two ways in words"><table class="table compare-words">
        <thead><tr><th scope="col" class="is-main"><span class="off-screen">Question</span></th><th scope="col">Transaction message</th><th scope="col">Outbox</th></tr></thead>
        <tbody>${WORDS.map(([question, transaction, outbox]) => html`<tr key=${question}><th scope="row">${question}</th><td class="is-wrapped" data-way="Transaction message">${transaction}</td><td class="is-wrapped" data-way="Outbox">${outbox}</td></tr>`)}</tbody>
      </table></div>
    <//>
    <${Note}><p>Both send at least once in the end. What makes the effect happen once is the inbox of each consumer: the message's id and its work are one database transaction.</p><//>
  </div>`;
}

function span(data) {
  return `the last ${duration(data.window_s * 1000)}`;
}

function Measured({ data }) {
  const ways = Object.keys(WAYS);
  return html`<div class="table-scroll" tabIndex="0" role="region" aria-label="The two ways, measured"><table class="table">
    <thead><tr><th scope="col" class="is-main"><span class="off-screen">Measure</span></th>${ways.map((way) => html`<th key=${way} scope="col" class="is-number">${WAYS[way]}</th>`)}</tr></thead>
    <tbody>${MEASURES.map((measure) => html`<tr key=${measure.id}><th scope="row" class="is-wrapped">${measure.label}</th>
      ${ways.map((way) => html`<td key=${way} class="is-number">${measure.format(data.ways[way]?.[measure.id])}</td>`)}</tr>`)}</tbody>
  </table></div>`;
}
