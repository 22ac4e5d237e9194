"""The SQL of the embedded segment log; what changes several tables is a function of the schema in `sql/`."""

# Payloads travel binary: as text they would be twice as long, and parsed.
APPEND = """
SELECT refusal, refused_index, base_offsets, duplicates FROM segment_append(
    %(incarnation)s::bigint, %(segment_id)s::bigint, %(producer)s::text, %(counts)s::integer[],
    %(hash_lows)s::integer[], %(hash_highs)s::integer[], %(firsts)s::bigint[], %(lasts)s::bigint[],
    %(sizes)s::integer[], %(deliver_ats_ms)s::bigint[], %(payloads)b::bytea[])
"""

READ = """
SELECT start_offset, end_offset, terminated, base_offset, count, payload FROM segment_read(
    %(incarnation)s::bigint, %(segment_id)s::bigint, %(offset)s::bigint, %(max_bytes)s::bigint,
    %(max_batches)s::integer)
"""

CREATE = """
SELECT refusal FROM segment_create(
    %(incarnation)s::bigint, %(segment_id)s::bigint, %(hash_start)s::integer, %(hash_end)s::integer,
    %(subscriptions)s::text[], %(operation)s::text, %(token)s::bigint)
"""
CREATE_ALL = """
SELECT segment_create_all(
    %(incarnation)s::bigint, %(segment_ids)s::bigint[], %(hash_starts)s::integer[], %(hash_ends)s::integer[],
    %(cursor_segment_ids)s::bigint[], %(cursors)s::text[])
"""
TERMINATE = """
SELECT refusal, final_offset FROM segment_terminate(
    %(incarnation)s::bigint, %(segment_id)s::bigint, %(operation)s::text, %(token)s::bigint)
"""
TRIM = """
SELECT refusal, new_start FROM segment_trim(
    %(incarnation)s::bigint, %(segment_id)s::bigint, %(before)s::bigint, %(max_batches)s::integer)
"""
DELETE_ALL = "SELECT segment_delete_all(%(incarnation)s::bigint, %(segment_ids)s::bigint[])"

KEYS = """
SELECT incarnation, segment_id FROM segment_log
WHERE incarnation = coalesce(%(incarnation)s::bigint, incarnation) ORDER BY incarnation, segment_id
"""

STATS = """
SELECT l.start_offset, segment_end_offset(l), l.end_offset IS NOT NULL,
       coalesce((SELECT b.end_bytes FROM segment_batch b
                 WHERE b.log_id = l.log_id ORDER BY b.base_offset DESC LIMIT 1)
              - (SELECT b.end_bytes - octet_length(b.payload) FROM segment_batch b
                 WHERE b.log_id = l.log_id ORDER BY b.base_offset LIMIT 1), 0),
       floor(extract(epoch FROM l.created_at) * 1000)::bigint,
       floor(extract(epoch FROM l.terminated_at) * 1000)::bigint
FROM segment_log l WHERE l.incarnation = %(incarnation)s AND l.segment_id = %(segment_id)s
"""

LOG = """
SELECT log_id, hash_start, hash_end, end_offset IS NOT NULL
FROM segment_log WHERE incarnation = %(incarnation)s AND segment_id = %(segment_id)s
"""
MARKS_OF = """
SELECT producer, hash_start, hash_end, last_sequence
FROM segment_marks_of(%(log_id)s::bigint, %(producer)s::text)
"""
# Of a child, named first, and its parents: ranges, whether sealed, and a row for each mark of a parent.
INHERITABLE = """
SELECT log.incarnation, log.segment_id, log.hash_start, log.hash_end, log.end_offset IS NOT NULL,
       m.producer, m.hash_start, m.hash_end, m.last_sequence
FROM unnest(%(incarnations)s::bigint[], %(segment_ids)s::bigint[])
     WITH ORDINALITY AS wanted (incarnation, segment_id, number)
JOIN segment_log log USING (incarnation, segment_id)
LEFT JOIN LATERAL segment_marks(log.log_id) m ON wanted.number > 1
"""
INHERIT = """
SELECT refusal FROM segment_inherit(
    %(incarnation)s::bigint, %(segment_id)s::bigint, %(operation)s::text, %(token)s::bigint,
    %(producers)s::text[], %(starts)s::integer[], %(ends)s::integer[], %(lasts)s::bigint[])
"""

# The key share lock keeps the log from being deleted meanwhile, and lets appends pass.
CREATE_CURSOR = """
WITH log AS MATERIALIZED (
    SELECT l FROM segment_log l
    WHERE l.incarnation = %(incarnation)s AND l.segment_id = %(segment_id)s FOR KEY SHARE
)
SELECT segment_add_cursors(log.l, ARRAY[%(subscription)s::text], %(position)s::bigint) FROM log
"""
DELETE_CURSOR = """
SELECT segment_delete_cursors(log_id, %(subscription)s::text) FROM segment_log
WHERE incarnation = %(incarnation)s AND segment_id = %(segment_id)s
"""
CURSORS = """
SELECT c.subscription, at.position, c.incarnation, c.generation,
       segment_acknowledged(at, %(max_ranges)s::integer), segment_end_offset(l), l.start_offset
FROM segment_log l LEFT JOIN segment_cursor c
  ON c.log_id = l.log_id AND c.subscription = coalesce(%(subscription)s::text, c.subscription)
LEFT JOIN LATERAL segment_newest_position(c.cursor_id) AS at ON true
WHERE l.incarnation = %(incarnation)s AND l.segment_id = %(segment_id)s
ORDER BY c.subscription
"""
OWN = """
UPDATE segment_cursor c SET generation = %(generation)s FROM segment_log l
WHERE l.incarnation = %(incarnation)s AND l.segment_id = %(segment_id)s
  AND c.log_id = l.log_id AND c.subscription = %(subscription)s AND c.generation < %(generation)s
"""
ACKNOWLEDGE = """
SELECT refused, at_position, at_incarnation FROM segment_acknowledge(
    %(incarnation)s::bigint, %(segment_id)s::bigint, %(subscription)s::text, %(generation)s::bigint,
    %(cursor_incarnation)s::bigint, %(position)s::bigint)
"""
SEEK = """
SELECT refused, at_incarnation, at_generation FROM segment_seek(
    %(incarnation)s::bigint, %(segment_id)s::bigint, %(subscription)s::text, %(position)s::bigint)
"""

OWN_ALL = """
UPDATE segment_cursor c SET generation = wanted.generation
FROM unnest(%(segment_ids)s::bigint[], %(cursors)s::text[], %(generations)s::bigint[])
     AS wanted (segment_id, subscription, generation)
JOIN segment_log l ON l.incarnation = %(incarnation)s AND l.segment_id = wanted.segment_id
WHERE c.log_id = l.log_id AND c.subscription = wanted.subscription AND c.generation < wanted.generation
"""

ACKNOWLEDGE_RANGES = """
SELECT refused, too_far, at_position, at_incarnation, at_generation FROM segment_acknowledge_ranges(
    %(incarnation)s::bigint, %(segment_id)s::bigint, %(subscription)s::text, %(generation)s::bigint,
    %(cursor_incarnation)s::bigint, %(firsts)s::bigint[], %(behinds)s::bigint[], %(max_ahead)s::integer)
"""
CLAIM = """
SELECT refused, a_log_id, batch_offsets, firsts, behinds, times, at_incarnation, at_end, drained,
       next_due_seconds
FROM segment_claim(
    %(incarnation)s::bigint, %(segment_id)s::bigint, %(subscription)s::text, %(session)s::text,
    %(consumer)s::text, %(max_messages)s::bigint, %(max_bytes)s::bigint, %(lease_seconds)s::float8,
    %(max_ranges)s::integer, %(max_ahead)s::integer)
"""
BATCHES = """
SELECT base_offset, count, payload FROM segment_batch
WHERE log_id = %(log_id)s AND base_offset = ANY(%(offsets)s::bigint[]) ORDER BY base_offset
"""
CHANGE_CLAIMS = """
SELECT refused, messages FROM segment_change_claims(
    %(incarnation)s::bigint, %(segment_id)s::bigint, %(subscription)s::text, %(session)s::text,
    %(firsts)s::bigint[], %(behinds)s::bigint[], %(due_in_seconds)s::float8, %(keeps)s::boolean,
    %(uncounted)s::integer)
"""
SKIP = """
SELECT refused, at_position, at_incarnation, at_generation FROM segment_skip(
    %(incarnation)s::bigint, %(segment_id)s::bigint, %(subscription)s::text, %(count)s::bigint)
"""
SKIP_TO = """
SELECT refused, at_position, at_incarnation, at_generation FROM segment_skip_to(
    %(incarnation)s::bigint, %(segment_id)s::bigint, %(subscription)s::text, %(position)s::bigint)
"""

# Of a cursor whose position was trimmed away, the ranges say what is acknowledged of what is still there.
BACKLOGS = """
SELECT l.segment_id, c.subscription, at.position,
       CASE WHEN at.position >= l.start_offset THEN at.frontier - at.position - at.pending
            ELSE greatest(0, at.frontier - l.start_offset) - coalesce((
                SELECT sum(p.behind - greatest(p.first, l.start_offset)) FROM segment_pending p
                WHERE p.cursor_id = c.cursor_id AND p.behind > l.start_offset), 0)::bigint END,
       l.start_offset, segment_end_offset(l), l.end_offset IS NOT NULL
FROM segment_log l JOIN segment_cursor c ON c.log_id = l.log_id
CROSS JOIN LATERAL segment_newest_position(c.cursor_id) AS at
WHERE l.incarnation = %(incarnation)s AND l.segment_id = coalesce(%(segment_id)s::bigint, l.segment_id)
  AND (%(subscription)s::text IS NULL OR split_part(c.subscription, '/', 1) = %(subscription)s)
  AND c.subscription = coalesce(%(cursor)s::text, c.subscription)
ORDER BY l.segment_id, c.subscription
"""
# Of the batch that has the position, for batches are stored whole.
USAGE = """
SELECT l.segment_id, c.subscription, next.base_offset, next.bytes,
       CASE WHEN at.pending = 0 THEN 0 ELSE coalesce((
           SELECT sum(p.behind - p.first) FROM segment_pending p
           WHERE p.cursor_id = c.cursor_id AND p.first >= at.position
             AND p.session IS NOT NULL AND p.due_at > clock_timestamp()), 0) END::bigint
FROM segment_log l JOIN segment_cursor c ON c.log_id = l.log_id
CROSS JOIN LATERAL segment_newest_position(c.cursor_id) AS at
CROSS JOIN LATERAL (
    SELECT coalesce(min(b.base_offset), l.start_offset) AS base_offset,
           coalesce((
               SELECT last.end_bytes FROM segment_batch last
               WHERE last.log_id = l.log_id ORDER BY last.base_offset DESC LIMIT 1
           ) - min(b.before_bytes), 0) AS bytes
    FROM (
        SELECT b.base_offset, b.end_bytes - octet_length(b.payload) AS before_bytes FROM segment_batch b
        WHERE b.log_id = l.log_id AND b.base_offset >= segment_batch_at(l.log_id, at.position)
        ORDER BY b.base_offset LIMIT 1
    ) b
) AS next
WHERE l.incarnation = %(incarnation)s
  AND (%(subscription)s::text IS NULL OR split_part(c.subscription, '/', 1) = %(subscription)s)
ORDER BY l.segment_id, c.subscription
"""
SIZES = """
SELECT l.segment_id, coalesce((SELECT b.end_bytes FROM segment_batch b
                               WHERE b.log_id = l.log_id ORDER BY b.base_offset DESC LIMIT 1)
                            - (SELECT b.end_bytes - octet_length(b.payload) FROM segment_batch b
                               WHERE b.log_id = l.log_id ORDER BY b.base_offset LIMIT 1), 0)
FROM segment_log l WHERE l.incarnation = %(incarnation)s
"""
# A child knows what its parents had of each producer, so that those that take appends tell all.
LAST_SEQUENCES = """
SELECT mark.producer, max(mark.last_sequence)
FROM segment_log l CROSS JOIN LATERAL segment_marks(l.log_id) AS mark
WHERE l.incarnation = %(incarnation)s AND l.end_offset IS NULL AND mark.last_sequence >= 0
GROUP BY mark.producer ORDER BY mark.producer LIMIT %(limit)s
"""
OFFSETS_AT = """
SELECT l.segment_id, segment_offset_at(l, to_timestamp(%(time_ms)s::bigint / 1000.0))
FROM segment_log l
WHERE l.incarnation = %(incarnation)s AND l.segment_id = coalesce(%(segment_id)s::bigint, l.segment_id)
"""
