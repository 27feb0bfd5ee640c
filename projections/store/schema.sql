-- What the log amounts to, as rows. Everything but `denials` follows from the log alone.
--
-- Positions are those of the log, times are µs of Unix time, amounts are in the unit of their
-- resource. Blobs are MessagePack. A fact that can end is an interval: it holds from position
-- `opened` on, up to but without position `closed`, or still when `closed` is NULL.

PRAGMA application_id = 0x67707564;  -- "gpud": a projection of gpuledger, and not another file
PRAGMA user_version = 9;             -- another version is deleted and built again

-- One row per record. The last one has the position of the projection, in the same transaction as
-- everything that follows from it. `body` are the record's events with their postings as the log
-- holds them, a list of `[event, postings]`, compressed; see `item_bodies.py`.
CREATE TABLE records (
  position INTEGER PRIMARY KEY,
  time     INTEGER NOT NULL,
  hash     BLOB NOT NULL,
  writer   TEXT NOT NULL,
  commands INTEGER NOT NULL,           -- how many commands the record answers
  body     BLOB NOT NULL
) STRICT;

CREATE INDEX records_by_time ON records (time);

-- Which records have events of a namespace. `numbers` is the list of their numbers in the record,
-- NULL for all of it. Events without a single namespace have no row.
CREATE TABLE events (
  namespace INTEGER NOT NULL,
  position  INTEGER NOT NULL,
  numbers   BLOB,
  PRIMARY KEY (namespace, position)
) STRICT, WITHOUT ROWID;

-- Texts and amounts that many rows repeat, by the numbers that these rows have instead. An empty
-- text has the number 0, `-` has 1. A value may have several numbers; see `interned_values.py`.
CREATE TABLE interned (
  number INTEGER PRIMARY KEY,
  body   ANY NOT NULL,                 -- text, or MessagePack
  opened INTEGER NOT NULL
) STRICT;

-- Numbers for names, given in the order in which the log names them first.
CREATE TABLE namespaces (
  number  INTEGER PRIMARY KEY,
  cluster TEXT NOT NULL,
  name    TEXT NOT NULL,
  opened  INTEGER NOT NULL,
  UNIQUE (name, cluster)
) STRICT;

CREATE TABLE accounts (
  number INTEGER PRIMARY KEY,
  name   TEXT NOT NULL UNIQUE,
  opened INTEGER NOT NULL
) STRICT;

CREATE TABLE clusters (
  name   TEXT PRIMARY KEY,
  uid    TEXT NOT NULL,
  opened INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The lines of accounts, by the numbers that the log gave them.
CREATE TABLE lines (
  number  INTEGER PRIMARY KEY,
  account INTEGER NOT NULL,
  key     TEXT NOT NULL,
  opened  INTEGER NOT NULL,
  closed  INTEGER
) STRICT;

CREATE INDEX lines_by_account ON lines (account);

-- Which account covers which namespace, when.
CREATE TABLE coverages (
  account   INTEGER NOT NULL,
  namespace INTEGER NOT NULL,
  opened    INTEGER NOT NULL,
  closed    INTEGER,
  PRIMARY KEY (namespace, account, opened)
) STRICT, WITHOUT ROWID;

-- What an account selects, where that is not simply all that it names: `reach` selects the clusters
-- and namespaces that it covers (`null` when it names them), `selects` the objects that it counts in
-- them. JSON: lists of conditions `[key, operator, [value, …]]` that must all hold, those on
-- labels with the number of their key. With `asked_only` it counts envelopes as far as they were
-- asked for.
CREATE TABLE selections (
  account INTEGER NOT NULL,
  reach   TEXT NOT NULL,
  selects TEXT NOT NULL,
  asked_only INTEGER NOT NULL,
  opened  INTEGER NOT NULL,
  closed  INTEGER,
  PRIMARY KEY (account, opened)
) STRICT, WITHOUT ROWID;

-- The open lines of an account and their limits, `[line, limit, …]` by line, until its next row.
CREATE TABLE limits (
  account  INTEGER NOT NULL,
  position INTEGER NOT NULL,
  body     BLOB NOT NULL,
  PRIMARY KEY (account, position)
) STRICT, WITHOUT ROWID;

-- Balances of an account after a record, until its next row: `[used, reserved, …]` of its open
-- lines, in the order of `limits`. At most one row per account and record.
CREATE TABLE balances (
  account  INTEGER NOT NULL,
  position INTEGER NOT NULL,
  body     BLOB NOT NULL,
  PRIMARY KEY (account, position)
) STRICT, WITHOUT ROWID;

-- What makes up the charge of a key: holds (base 0 or a resourceVersion) and the committed object
-- (base -1). A row is never changed. It is open while `charges_open` has it, and closed from then on
-- that `charges_closed` has it. Columns that many rows repeat are numbers of `interned`.
CREATE TABLE charges (
  number    INTEGER PRIMARY KEY,       -- in the order of opening
  namespace INTEGER NOT NULL,
  key       TEXT NOT NULL,
  uid       TEXT NOT NULL,
  base      INTEGER NOT NULL,
  version   INTEGER NOT NULL,          -- of an object; 0 for a hold
  demand    INTEGER NOT NULL,          -- interned amounts
  admitted  INTEGER,                   -- interned: what of an object's demand was let in; NULL for all
  since     INTEGER,                   -- time; NULL for that of the record `opened`
  owner     INTEGER NOT NULL,          -- interned
  actor     INTEGER NOT NULL,          -- interned
  root      INTEGER NOT NULL,          -- interned key of the root that it draws from; 1 if it may not
  traits    INTEGER NOT NULL,          -- interned: what quotas select it by
  read      INTEGER NOT NULL,          -- up to which number its labels are recorded; -1 for a digest
  devices   BLOB,                      -- of an object; NULL for none
  opened    INTEGER NOT NULL
) STRICT;

-- `unread` is `read` of the row once a label with a higher number exists, NULL before.
CREATE TABLE charges_open (
  namespace INTEGER NOT NULL,
  key       TEXT NOT NULL,
  base      INTEGER NOT NULL,
  uid       TEXT NOT NULL,
  number    INTEGER NOT NULL,
  opened    INTEGER NOT NULL,
  unread    INTEGER,
  PRIMARY KEY (namespace, key, base, uid)
) STRICT, WITHOUT ROWID;

CREATE INDEX charges_unread ON charges_open (unread, namespace) WHERE unread IS NOT NULL;

CREATE TABLE charges_closed (
  fork      INTEGER NOT NULL,          -- see `interval_index.py`
  namespace INTEGER NOT NULL,
  closed    INTEGER NOT NULL,
  number    INTEGER NOT NULL,
  cause     INTEGER NOT NULL,          -- interned: why it was closed
  PRIMARY KEY (fork, namespace, closed, number)
) STRICT, WITHOUT ROWID;

-- What the pods that name a root are charged together, and what part of it is committed. While the
-- root is `live`, has an entry of its own, both together are charged the larger of its charge and
-- this; otherwise the pods are charged one by one.
CREATE TABLE draws (
  number    INTEGER PRIMARY KEY,       -- in the order of opening
  namespace INTEGER NOT NULL,
  root      TEXT NOT NULL,             -- key
  charge    BLOB NOT NULL,
  committed BLOB NOT NULL,
  pods      INTEGER NOT NULL,
  live      INTEGER NOT NULL,
  opened    INTEGER NOT NULL,
  closed    INTEGER,
  fork      INTEGER                    -- where a closed row is filed; see `interval_index.py`
) STRICT;

CREATE INDEX draws_open ON draws (namespace, root) WHERE closed IS NULL;
CREATE INDEX draws_closed ON draws (fork, namespace, closed, opened) WHERE closed IS NOT NULL;

-- The cards of nodes, whose accounts have the same names. `state` is `announced`; `lost` when the
-- node no longer announces a card that pods still hold, `gone` when the node does not exist any more.
-- `body` is the card as JSON.
CREATE TABLE cards (
  account INTEGER NOT NULL,
  cluster TEXT NOT NULL,
  node    TEXT NOT NULL,
  keeper  TEXT NOT NULL,               -- who hands the card out
  state   TEXT NOT NULL,
  body    TEXT NOT NULL,
  opened  INTEGER NOT NULL,
  closed  INTEGER,
  PRIMARY KEY (account, opened)
) STRICT, WITHOUT ROWID;

-- Where the cards of pods are. `node` is `<cluster>/<node>`, empty when only what `stands` is left:
-- the amounts that the cards decided. `parts` are the containers with their shares of cards.
CREATE TABLE placements (
  number      INTEGER PRIMARY KEY,     -- in the order of opening
  namespace   INTEGER NOT NULL,
  key         TEXT NOT NULL,
  uid         TEXT NOT NULL,
  node        TEXT NOT NULL,
  parts       BLOB NOT NULL,
  stands      BLOB NOT NULL,
  since       INTEGER NOT NULL,        -- time at which the pod was placed
  stage       INTEGER NOT NULL,        -- 0 proposed, 1 bound, 2 handed out
  initialised INTEGER NOT NULL,        -- whether init containers are over and book nothing
  observed    INTEGER NOT NULL,        -- whether another scheduler placed the pod
  opened      INTEGER NOT NULL,
  closed      INTEGER,
  fork        INTEGER                  -- where a closed row is filed; see `interval_index.py`
) STRICT;

CREATE INDEX placements_open ON placements (node, namespace, key) WHERE closed IS NULL;
CREATE INDEX placements_closed ON placements (fork, node, closed, opened)
  WHERE closed IS NOT NULL;

-- Corrections: facts that the ledger did not receive in time; see `drift_table.py`. `number` counts from
-- 0 in the record. `over` is a list of `[line, used, limit]` that it brought over their limits.
CREATE TABLE drift (
  position  INTEGER NOT NULL,
  number    INTEGER NOT NULL,
  namespace INTEGER NOT NULL,
  key       TEXT NOT NULL,
  uid       TEXT NOT NULL,
  type      TEXT NOT NULL,
  cause     TEXT NOT NULL,
  amounts   BLOB NOT NULL,
  over      BLOB NOT NULL,
  PRIMARY KEY (position, number)
) STRICT, WITHOUT ROWID;

-- Refused requests. They come from another stream, where old ones expire, and are not a part
-- of the digest.
CREATE TABLE denials (
  position  INTEGER PRIMARY KEY,       -- in the stream of denials
  time      INTEGER NOT NULL,
  cluster   TEXT NOT NULL,
  namespace TEXT NOT NULL,
  body      BLOB NOT NULL
) STRICT;

CREATE INDEX denials_by_namespace ON denials (namespace, position);
