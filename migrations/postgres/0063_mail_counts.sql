-- Mails of a UTC day that a workspace caused, for the limits of its plan and of each address. They stay when the reports
-- that caused them are deleted.
create table mail_counts (
    workspace_id bigint not null references workspaces (id) on delete cascade,
    day          date not null,
    -- report, notice, invitation
    kind         text not null,
    -- A mailbox, or empty for all of them together.
    recipient    text not null,
    mails        bigint not null,
    primary key (workspace_id, day, kind, recipient)
);
create index mail_counts_day on mail_counts (day);

-- A recipient who unsubscribes gets no report of the workspace. Rows with a schedule_id are those of the release before.
alter table report_mail_stops add column is_unsubscribed boolean not null default false;
insert into report_mail_stops (workspace_id, recipient, reason, is_unsubscribed, created_at)
select workspace_id, recipient, 'unsubscribed', true, min(created_at)
from report_mail_stops
where schedule_id is not null
group by workspace_id, recipient
on conflict (workspace_id, recipient) where schedule_id is null
do update set is_unsubscribed = true;
