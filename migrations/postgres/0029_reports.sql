-- Reports: what a client's regular file shows.
create table reports (
    id         bigint generated always as identity primary key,
    brand_id   bigint not null references brands (id) on delete cascade,
    name       text not null,
    created_at timestamptz not null,
    updated_at timestamptz not null,
    -- [{type, title, options}]
    widgets    jsonb not null
);
create index reports_brand on reports (brand_id, id);

-- When a report is exported and mailed by itself. Times are local ones of the brand's zone.
create table report_schedules (
    id          bigint generated always as identity primary key,
    report_id   bigint not null references reports (id) on delete cascade,
    frequency   text not null check (frequency in ('daily', 'weekly', 'monthly', 'cron')),
    cron        text,
    -- HH:MM; null for cron.
    time        text,
    format      text not null,
    -- ["ann@example.com"]
    recipients  jsonb not null,
    next_run_at timestamptz not null,
    last_run_at timestamptz,
    created_at  timestamptz not null,
    updated_at  timestamptz not null
);
create index report_schedules_report on report_schedules (report_id);
create index report_schedules_due on report_schedules (next_run_at);

-- Exports of reports. The file is deleted before the row (file_id is null then), the row with its report.
create table report_deliveries (
    id           bigint generated always as identity primary key,
    report_id    bigint not null references reports (id) on delete cascade,
    brand_id     bigint not null references brands (id) on delete cascade,
    schedule_id  bigint references report_schedules (id) on delete set null,
    status       text not null check (status in ('pending', 'processing', 'sent', 'failed')),
    format       text not null,
    starts_on    date not null,
    ends_on      date not null,
    file_id      bigint references files (id) on delete set null,
    size_bytes   bigint,
    error        jsonb,
    -- When the file is deleted.
    expires_at   timestamptz,
    completed_at timestamptz,
    created_at   timestamptz not null,
    updated_at   timestamptz not null
);
create index report_deliveries_report on report_deliveries (report_id, id);
create index report_deliveries_brand on report_deliveries (brand_id, id);
create index report_deliveries_schedule on report_deliveries (schedule_id) where schedule_id is not null;
create index report_deliveries_file on report_deliveries (file_id) where file_id is not null;
create index report_deliveries_expiring on report_deliveries (expires_at) where file_id is not null;

-- Whom a delivery is mailed to, and what has become of the mail.
create table report_recipients (
    delivery_id bigint not null references report_deliveries (id) on delete cascade,
    position    integer not null,
    recipient   text not null,
    status      text not null check (status in ('pending', 'sent', 'failed')),
    error       jsonb,
    mail_id     bigint references mails (id) on delete set null,
    primary key (delivery_id, position)
);
create index report_recipients_mail on report_recipients (mail_id) where mail_id is not null;

-- Addresses that no report is mailed to: by their own wish for a schedule (schedule_id), or since a mail server refused
-- them (schedule_id is null: for all reports of the workspace).
create table report_mail_stops (
    id           bigint generated always as identity primary key,
    workspace_id bigint not null references workspaces (id) on delete cascade,
    schedule_id  bigint references report_schedules (id) on delete cascade,
    recipient    text not null,
    reason       text not null,
    created_at   timestamptz not null
);
create unique index report_mail_stops_schedule on report_mail_stops (schedule_id, recipient) where schedule_id is not null;
create unique index report_mail_stops_workspace on report_mail_stops (workspace_id, recipient) where schedule_id is null;

-- Mails of reports have an HTML part, the file or an address of it, and an address that ends them. They go with their
-- delivery.
alter table mails add column body_html text;
alter table mails add column unsubscribe_url text;
alter table mails add column delivery_id bigint references report_deliveries (id) on delete cascade;
alter table mails add column has_file boolean not null default false;
create index mails_delivery on mails (delivery_id) where delivery_id is not null;
