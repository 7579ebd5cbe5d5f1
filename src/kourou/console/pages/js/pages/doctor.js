/** doctor: problems of the cluster, what they mean, and their cures. */
import { html, useState } from "../lib/html.js";
import { get, useRead } from "../lib/api.js";
import { CommandList, Commands } from "../lib/command.js";
import { t, tn } from "../lib/i18n.js";
import { Badge, Card, Empty, ErrorBox, Freshness, Loaded, Note, PageHead } from "../lib/states.js";

const KINDS = { problem: "bad", warning: "warn", hint: "info" };

export default function DoctorPage() {
  const read = useRead("/doctor");
  const [again, setAgain] = useState({ isBusy: false, error: null });
  const examine = async () => {
    setAgain({ isBusy: true, error: null });
    try {
      await get("/doctor", { new: true });
      read.reload();
      setAgain({ isBusy: false, error: null });
    } catch (error) {
      setAgain({ isBusy: false, error });
    }
  };
  return html`
    <${PageHead} title=${t("doctor.title")} subtitle=${t("doctor.subtitle")}>
      <${Freshness} read=${read} />
      <button type="button" class="is-primary" disabled=${again.isBusy || read.isLoading} onClick=${examine}>${t(again.isBusy ? "doctor.examining" : "doctor.again")}</button>
      <${Commands} commands=${read.data?.commands} />
    <//>
    ${again.error && html`<${ErrorBox} error=${again.error} onRetry=${examine} />`}
    <${Loaded} read=${read} loading=${t("doctor.examining")}>${({ report }) => html`
      ${report.findings.length === 0 && html`<${Empty} title=${t("doctor.none")}><p>${t("doctor.examined", report)}</p><//>`}
      ${report.findings.map((finding, i) => html`<${Finding} key=${i} finding=${finding} />`)}
      ${report.not_checked.length > 0 && html`<${Note} kind="warn"><strong>${tn("doctor.not_checked", report.not_checked.length)}</strong>
        <ul>${report.not_checked.map((item, i) => html`<li key=${i}>${item.check} · ${item.where}: ${item.reason}</li>`)}</ul><//>`}
    `}<//>`;
}

function Finding({ finding }) {
  const badge = html`<${Badge} kind=${KINDS[finding.severity]}>${t(`doctor.${finding.severity}`)}<//>`;
  return html`<${Card} title=${html`${badge} ${finding.where}`} actions=${html`<span class="muted">${finding.check}</span>`}>
    <p><strong>${finding.what}</strong></p>
    <p>${finding.meaning}</p>
    <p><strong>${t("doctor.cure")}</strong> ${finding.cure}</p>
    ${finding.commands.length > 0 && html`<${CommandList} commands=${finding.commands} />`}
  <//>`;
}
