/**
 * The dialog of every change: fields, then what the change will do and the equivalent mqadmin command, then
 * the outcome for each target. The server compares the confirmed plan with what would happen now: if that
 * differs (409), nothing is done and the new effects are shown.
 */
import { html, useEffect, useRef, useState } from "./html.js";
import { send } from "./api.js";
import { CommandList } from "./command.js";
import { Dialog } from "./dialog.js";
import { checkFields, Fields, formValues, initialValues } from "./form.js";
import { Icon } from "./icons.js";
import { t, tn } from "./i18n.js";
import { ErrorBox, Loading, Note } from "./states.js";
import { toast } from "./toast.js";

/**
 * @param {object} props
 * @param {string} props.title
 * @param {import("./form.js").FieldDefinition[]} [props.fields] none: the preview is shown at once
 * @param {Record<string, any>} [props.initial]
 * @param {(values: any) => {method: "POST"|"PUT"|"DELETE", path: string, body?: any, params?: any}} props.request
 * @param {() => void} props.onClose
 * @param {(answer: any) => void} [props.onDone] after a change that reached at least one target
 * @param {string} [props.confirm] text of the button that does it
 * @param {boolean} [props.dangerous] it cannot be undone: the button is red
 * @param {any} [props.intro] above the fields
 * @param {(answer: any) => any} [props.result] shown below the outcomes
 * @param {boolean} [props.resultHasOutcomes] the result shows the outcome of each target itself
 * @param {(details: any) => any} [props.details] shows the figures of a preview, below the effects
 */
export function ChangeDialog({ title, fields = [], initial = {}, request, onClose, onDone, confirm, dangerous = false, intro, result, resultHasOutcomes = false, details }) {
  const [values, setValues] = useState(() => initialValues(fields, initial));
  const [messages, setMessages] = useState({});
  const [step, setStep] = useState(fields.length ? "form" : "preview");
  const [preview, setPreview] = useState(null);
  const [answer, setAnswer] = useState(null);
  const [error, setError] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const [hasMoved, setMoved] = useState(false);
  const isOpen = useRef(true);
  useEffect(() => () => { isOpen.current = false; }, []);

  const call = async (params) => {
    const { method, path, body, params: more } = request(formValues(fields, values));
    return send(method, path, body, { ...more, ...params });
  };
  const attempt = async (work, failed) => {
    setBusy(true);
    setError(null);
    try {
      await work();
    } catch (problem) {
      failed(problem);
    }
    if (isOpen.current) setBusy(false);
  };

  const showPreview = () => {
    const wrong = checkFields(fields, values);
    setMessages(wrong);
    if (Object.keys(wrong).length) return undefined;
    setMoved(false);
    return attempt(async () => {
      setPreview(await call({ preview: true }));
      setStep("preview");
    }, (problem) => {
      // The message of bad input starts with the name of the field.
      const field = problem.status === 400 && fields.find((item) => problem.message.startsWith(`${item.name}: `));
      if (field) setMessages({ [field.name]: problem.message.slice(field.name.length + 2) });
      else setError(problem);
    });
  };
  const apply = () => attempt(async () => {
    const done = await call({ plan: preview?.plan });
    const failures = done?.outcomes?.filter((outcome) => !outcome.is_done) ?? [];
    onDone?.(done);
    if (!failures.length && !result) {
      toast(t("change.done", { title }));
      onClose();
      return;
    }
    setAnswer(done);
    setStep("outcome");
  }, (problem) => {
    const renewed = problem.status === 409 && problem.body?.preview;
    if (renewed) {
      setPreview(renewed);
      setMoved(true);
    } else if (problem.body?.outcomes) {
      // It failed for all targets: each has its reason.
      setAnswer(problem.body);
      setStep("outcome");
    } else setError(problem);
  });
  useEffect(() => { if (step === "preview" && !preview) showPreview(); }, []);

  const buttons = {
    form: html`<button type="button" onClick=${onClose}>${t("common.cancel")}</button>
      <button type="submit" class="is-primary" disabled=${isBusy}>${t("change.preview")}</button>`,
    preview: html`${fields.length > 0 && html`<button type="button" onClick=${() => { setStep("form"); setError(null); }}>${t("change.back")}</button>`}
      <button type="button" onClick=${onClose}>${t("common.cancel")}</button>
      <button type="submit" class=${dangerous ? "is-danger" : "is-primary"} disabled=${isBusy || !preview} data-autofocus=${fields.length ? undefined : true}>${confirm ?? t("change.confirm")}</button>`,
    outcome: html`<button type="button" class="is-primary" onClick=${onClose}>${t("common.close")}</button>`,
  };
  const submit = () => (isBusy ? undefined : step === "form" ? showPreview() : step === "preview" && preview ? apply() : onClose());
  return html`<${Dialog} wide title=${title} onClose=${onClose} onSubmit=${submit} footer=${buttons[step]}>
    ${step === "form" && [intro, html`<${Fields} fields=${fields} values=${values} onChange=${setValues} messages=${messages} />`]}
    ${step === "preview" && [
      hasMoved && html`<${Note} kind="warn">${t("change.moved")}<//>`,
      preview ? html`<${Preview} preview=${preview} details=${details} />` : !error && html`<${Loading} label=${t("change.previewing")} />`,
    ]}
    ${step === "outcome" && [html`<${Outcomes} outcomes=${answer.outcomes ?? []} isShort=${resultHasOutcomes} />`, result?.(answer)]}
    ${error && html`<${ErrorBox} error=${error} onRetry=${step === "preview" && !preview ? showPreview : undefined} />`}
  <//>`;
}

/** What a change will do. @param {{preview: any, details?: (details: any) => any}} props */
export function Preview({ preview, details }) {
  const { effects = [], warnings = [], commands = [] } = preview;
  return html`<div class="preview" aria-live="polite">
    <h3>${tn("change.effects", effects.length)}</h3>
    ${effects.length ? html`<ul class="effects">${effects.map((effect, i) => html`<li key=${i}>${effect}</li>`)}</ul>` : html`<p>${t("change.no_effect")}</p>`}
    ${details && preview.details && details(preview.details)}
    ${warnings.length > 0 && html`<${Note} kind="warn"><ul>${warnings.map((warning, i) => html`<li key=${i}>${warning}</li>`)}</ul><//>`}
    ${commands.length > 0 && html`<h3>${t("command.title")}</h3><${CommandList} commands=${commands} />`}
  </div>`;
}

/** The outcome for each target; short: how many failed. @param {{outcomes: {target: string, is_done: boolean, problem: string|null}[], isShort?: boolean}} props */
export function Outcomes({ outcomes, isShort = false }) {
  const failed = outcomes.filter((outcome) => !outcome.is_done).length;
  return html`<div role="status">
    ${failed > 0 && html`<${Note} kind="bad">${t("change.partly", { failed, count: outcomes.length })}<//>`}
    ${!isShort && html`<ul class="outcomes">${outcomes.map((outcome) => html`<li key=${outcome.target} class=${outcome.is_done ? "is-good" : "is-bad"}>
      <${Icon} name=${outcome.is_done ? "check" : "cross"} label=${t(outcome.is_done ? "change.target_done" : "change.target_failed")} /><strong>${outcome.target}</strong>${outcome.problem && html`<span>${outcome.problem}</span>`}</li>`)}</ul>`}
  </div>`;
}
