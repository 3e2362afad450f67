// Schedules: when each fires next, and one with its coming firings; created and changed with a look ahead.

import { Fragment } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { type Job, part, type Schemas, send } from "../api/client.ts";
import { second, useResource } from "../api/live.ts";
import { mayOperate } from "../api/me.ts";
import { curl, quoted, Terminal } from "../parts/copy.tsx";
import { ActDialog, dialog, tell } from "../parts/dialog.tsx";
import { Firings, type Timing } from "../parts/firings.tsx";
import { Json } from "../parts/json.tsx";
import { Empty, Loaded } from "../parts/notice.tsx";
import { ScheduleForm } from "../parts/schedule-form.tsx";
import { Table } from "../parts/table.tsx";
import { Text } from "../parts/text.tsx";
import { Moment, When } from "../parts/time.tsx";
import { go, href } from "../router.ts";
import { number, spaced, stateWord } from "../words.ts";

type Schedule = Schemas["Schedule"];

/** When it fires, as a preview asks for it. */
function timingOf({ cron, zone, every, anchor, delay }: Schemas["NewSchedule"]): Timing {
  if (cron) return { cron, ...(zone ? { zone } : {}) };
  if (every) return { every, ...(anchor ? { anchor } : {}) };
  return { delay: delay ?? "" };
}

/** When it fires, in a few words. */
export function timing(of: Schemas["NewSchedule"]): string {
  if (of.cron) return `${of.cron} ${of.zone ?? "UTC"}`;
  if (of.every) return `every ${of.every}`;
  return `${of.delay} after its job ended`;
}

/** As late as upkeep, which goes on about once a second, never is while somebody does it. */
const LATE_MS = 60_000;

function Next({ one }: { one: Schedule }) {
  if (one.paused) return <span class="muted">paused</span>;
  const late = one.next_at ? second.value - Date.parse(one.next_at) > LATE_MS : false;
  return (
    <span class="row close-row">
      <When at={one.next_at} />
      {late ? <span class="pill danger">late</span> : null}
    </span>
  );
}

/** The last firings as a strip, oldest first, each a link to its job. */
function Marks({ jobs }: { jobs: Job[] }) {
  return (
    <ol class="firings" aria-label="Last firings, oldest first">
      {[...jobs].reverse().map((job) => (
        <li key={job.id}>
          <a
            class={job.state}
            href={href(`/jobs/${job.id}`)}
            aria-label={`${job.state}, ${job.firing?.slot ?? job.created_at}`}
            title={`${job.state}, ${job.firing?.slot ?? job.created_at}`}
          >
            <span />
          </a>
        </li>
      ))}
    </ol>
  );
}

const STRIP_MAX = 8;

/** A short strip in a list, asked for when its schedule has fired. */
function Strip({ name, fired }: { name: string; fired: number }) {
  const asked = new URLSearchParams({ schedule: name, limit: String(STRIP_MAX), payloads: "false" });
  const page = useResource<Schemas["JobPage"]>(fired > 0 ? `/v1/jobs?${asked}` : null, 15_000);
  const seen = useRef(fired);
  useEffect(() => {
    if (seen.current !== fired) page.reload();
    seen.current = fired;
  }, [fired]);
  const jobs = [...(page.data?.items ?? [])].reverse();
  if (jobs.length === 0) return <span class="muted">–</span>;
  const says = `The last ${jobs.length}, oldest first: ${jobs.map((job) => stateWord[job.state]).join(", ")}`;
  return (
    <span class="firings short" role="img" aria-label={says} title={says}>
      {jobs.map((job) => (
        <span key={job.id} class={job.state} />
      ))}
    </span>
  );
}

export function SchedulesScreen() {
  const page = useResource<Schemas["SchedulePage"]>("/v1/schedules?limit=200", 3000);
  return (
    <>
      <div class="head">
        <h1>Schedules</h1>
        {mayOperate() ? (
          <div class="actions">
            <a class="button primary" href={href("/schedules/~new")}>
              New schedule
            </a>
          </div>
        ) : null}
      </div>
      <Loaded of={page}>
        {(data) => (
          <Table
            caption="Schedules, by name"
            rows={data.items}
            id={(one) => one.schedule.name ?? ""}
            empty={
              <Empty
                says="No schedules yet. A schedule submits a job again and again."
                command="windlass schedules create nightly report.build --cron '30 2 * * *' --zone Europe/Berlin"
              />
            }
            columns={[
              {
                name: "Schedule",
                lead: true,
                sort: "ascending",
                cell: (one) => (
                  <span class="row">
                    <a href={href(`/schedules/${encodeURIComponent(one.schedule.name ?? "")}`)}>
                      <Text>{one.schedule.name ?? ""}</Text>
                    </a>
                    {one.paused ? <span class="pill">paused</span> : null}
                  </span>
                ),
              },
              {
                name: "Fires",
                cell: (one) => (
                  <span class="two-lines">
                    <Text>{spaced(one.words ?? "")}</Text>
                    {one.schedule.cron ? (
                      <code class="small muted">
                        <Text>{one.schedule.cron}</Text>
                      </code>
                    ) : null}
                  </span>
                ),
              },
              { name: "Type", cell: (one) => <Text>{one.schedule.job.type}</Text> },
              { name: "Next", narrow: true, cell: (one) => <Next one={one} /> },
              {
                name: "Last firings",
                narrow: true,
                cell: (one) => <Strip name={one.schedule.name ?? ""} fired={one.fired} />,
              },
              { name: "Last", narrow: true, cell: (one) => <When at={one.last_slot} /> },
              {
                name: "Fired",
                narrow: true,
                number: true,
                cell: (one) => (
                  <a href={href(`/jobs?schedule=${encodeURIComponent(one.schedule.name ?? "")}`)}>
                    {number(one.fired)}
                  </a>
                ),
              },
            ]}
            foot={data.next_cursor ? "The first 200." : undefined}
          />
        )}
      </Loaded>
    </>
  );
}

function Acts({ one, reload }: { one: Schedule; reload: () => void }) {
  const name = one.schedule.name ?? "";
  const path = `/v1/schedules/${part(name)}`;
  if (!mayOperate()) return null;
  const pause = async () => {
    await send("POST", `${path}/${one.paused ? "resume" : "pause"}`);
    reload();
    tell(one.paused ? `${name} fires again` : `${name} does not fire until it is resumed`);
  };
  const fire = async () => {
    const { job_id } = await send<Schemas["Triggered"]>("POST", `${path}/trigger`);
    reload();
    tell(`${name} was fired`, <a href={href(`/jobs/${job_id}`)}>to its job</a>);
  };
  const remove = () => {
    dialog.value = (
      <ActDialog
        title={`Delete ${name}`}
        says="The schedule fires no more. The jobs that it has fired stay."
        verb="Delete"
        risky
        typed={name}
        lines={() => [`windlass schedules delete ${quoted(name)}`, curl("DELETE", path)]}
        act={async () => {
          await send("DELETE", path);
          go("/schedules");
          tell(`${name} was deleted`);
        }}
      />
    );
  };
  return (
    <div class="actions">
      <button type="button" class="button" onClick={() => void fire()}>
        Fire now
      </button>
      <button type="button" class="button" onClick={() => void pause()}>
        {one.paused ? "Resume" : "Pause"}
      </button>
      <a class="button" href={href(`/schedules/${encodeURIComponent(name)}/edit`)}>
        Edit
      </a>
      <button type="button" class="button risky" onClick={remove}>
        Delete
      </button>
    </div>
  );
}

function Fired({ name }: { name: string }) {
  const page = useResource<Schemas["JobPage"]>(
    `/v1/jobs?schedule=${encodeURIComponent(name)}&limit=20&payloads=false`,
    3000,
  );
  return (
    <section class="card">
      <h2>Last firings</h2>
      <Loaded of={page}>
        {(data) => (data.items.length === 0 ? <p class="muted">None is kept.</p> : <Marks jobs={data.items} />)}
      </Loaded>
      <a href={href(`/jobs?schedule=${encodeURIComponent(name)}`)}>All jobs that it fired</a>
    </section>
  );
}

function One({ one, reload }: { one: Schedule; reload: () => void }) {
  const { schedule } = one;
  const name = schedule.name ?? "";
  const facts: [string, preact.ComponentChildren][] = [
    [
      "Fires",
      <code>
        <Text>{timing(schedule)}</Text>
      </code>,
    ],
    ["Type", <Text>{schedule.job.type}</Text>],
    ["Queue", <Text>{schedule.job.queue ?? "default"}</Text>],
    ["Next", one.paused ? "paused" : <Moment at={one.next_at} />],
    ["Last", <Moment at={one.last_slot} />],
    [
      "Missed firings",
      {
        coalesce: "fire once, together",
        skip: "are left out",
        all: `fire one by one, at most ${schedule.missed_max ?? 1}`,
      }[schedule.missed ?? "coalesce"],
    ],
    [
      "While the last runs",
      { skip: "it does not fire", queue_one: "one waits", allow: "it fires all the same" }[schedule.overlap ?? "skip"],
    ],
    ["Version", `${one.version}${schedule.from_code ? ", registered by a worker's code" : ""}`],
  ];
  return (
    <>
      <div class="head">
        <h1>
          <Text>{name}</Text>
        </h1>
        {one.paused ? <span class="pill">paused</span> : null}
        <Acts one={one} reload={reload} />
      </div>
      <div class="grid-3">
        <div class="stack">
          <Firings timing={timingOf(schedule)} />
          <Fired name={name} />
        </div>
        <div class="stack">
          <section class="card">
            <h2>Facts</h2>
            <dl class="facts">
              {facts.map(([word, value]) => (
                <Fragment key={word}>
                  <dt>{word}</dt>
                  <dd>{value}</dd>
                </Fragment>
              ))}
            </dl>
          </section>
          <details class="card">
            <summary>Its job, as JSON</summary>
            <Json text={JSON.stringify(schedule.job)} />
          </details>
          <Terminal
            lines={[
              `windlass schedules trigger ${quoted(name)}`,
              curl("POST", `/v1/schedules/${part(name)}/trigger`),
              `windlass schedules ${one.paused ? "resume" : "pause"} ${quoted(name)}`,
              curl("POST", `/v1/schedules/${part(name)}/${one.paused ? "resume" : "pause"}`),
            ]}
          />
        </div>
      </div>
    </>
  );
}

export function ScheduleScreen({ name }: { name: string }) {
  const found = useResource<Schedule>(`/v1/schedules/${part(name)}`, 2000);
  return (
    <>
      <p class="crumbs">
        <a href={href("/schedules")}>Schedules</a>
      </p>
      <Loaded of={found}>{(one) => <One one={one} reload={found.reload} />}</Loaded>
    </>
  );
}

export function NewScheduleScreen() {
  return (
    <>
      <p class="crumbs">
        <a href={href("/schedules")}>Schedules</a>
      </p>
      <div class="head">
        <h1>New schedule</h1>
      </div>
      <ScheduleForm />
    </>
  );
}

export function EditScheduleScreen({ name }: { name: string }) {
  const found = useResource<Schedule>(`/v1/schedules/${part(name)}`);
  return (
    <>
      <p class="crumbs">
        <a href={href("/schedules")}>Schedules</a> / <a href={href(`/schedules/${encodeURIComponent(name)}`)}>{name}</a>
      </p>
      <div class="head">
        <h1>Edit</h1>
      </div>
      <Loaded of={found}>{(one) => <ScheduleForm key={one.version} of={one} reload={found.reload} />}</Loaded>
    </>
  );
}
