-- Attempts in a row that failed or were slow; ten of them open the endpoint's circuit.
alter table webhooks add column strikes integer not null default 0;

-- Lanes with fewer places than their kind's.
create table narrow_lanes (
    lane   text primary key,
    places bigint not null
);
