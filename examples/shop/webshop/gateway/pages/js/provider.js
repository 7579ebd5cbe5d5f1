/** How the simulated payment provider behaves, and a form that changes it. */
import { html, useState } from "/static/js/lib/html.js";
import { send, useLive } from "/static/js/lib/api.js";
import { Fields, checkFields } from "/static/js/lib/form.js";
import { toast } from "/static/js/lib/toast.js";
import { Loaded, Trouble } from "./trouble.js";

const FIELDS = [
  { name: "delay_ms", label: "Delay of callbacks in milliseconds", type: "integer", required: true, min: 0, max: 600_000 },
  { name: "repeats", label: "Repetitions of each callback", type: "integer", required: true, min: 0, max: 20, hint: "In parallel and out of order: payments must count one of them." },
  { name: "decline_percent", label: "Declined payments in percent", type: "integer", required: true, min: 0, max: 100 },
  { name: "is_paused", label: "Paused: no callbacks until this is off", type: "checkbox" },
];

export function Provider() {
  const read = useLive("/operator/behaviour", 5);
  return html`<${Loaded} read=${read}>${(data) => html`<${BehaviourForm} behaviour=${data.behaviour} normal=${data.normal} reload=${read.reload} />`}<//>`;
}

function BehaviourForm({ behaviour, normal, reload }) {
  const [edited, edit] = useState(null);
  const [error, setError] = useState(null);
  const values = edited ?? { ...behaviour, decline_percent: Math.round(behaviour.decline_rate * 100) };
  const messages = checkFields(FIELDS, values);
  const isNormal = Object.keys(normal).every((name) => behaviour[name] === normal[name]);
  const apply = (event) => {
    event.preventDefault();
    const { decline_percent: percent, ...others } = values;
    if (!Object.keys(messages).length) change({ ...others, decline_rate: percent / 100 }, "The provider behaves so from now on.");
  };
  const change = async (wanted, done) => {
    setError(null);
    try {
      await send("PUT", "/operator/behaviour", wanted);
      edit(null);
      toast(done);
      reload();
    } catch (failure) {
      setError(failure);
    }
  };
  return html`<form class="fields" noValidate onSubmit=${apply}>
    <${Fields} fields=${FIELDS} values=${values} onChange=${edit} messages=${messages} />
    ${error && html`<${Trouble} error=${error} />`}
    <div class="buttons"><button type="submit" class="is-primary" disabled=${edited === null}>Apply</button>
      <button type="button" disabled=${edited === null} onClick=${() => edit(null)}>Discard the edits</button>
      <button type="button" disabled=${isNormal && edited === null} onClick=${() => change(normal, "The provider behaves normally again.")}>Back to normal</button></div>
  </form>`;
}
