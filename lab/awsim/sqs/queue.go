package sqs

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// queue is a standard queue. Its owner's lock guards it.
type queue struct {
	name       string
	created    time.Time
	modified   time.Time
	attributes map[string]string // settings, with defaults filled in
	messages   []*message        // in the order in which they were sent
	// changed is closed, and replaced, when a message arrives or may have become visible earlier than was known.
	changed chan struct{}
}

// message is one message and how far it got.
type message struct {
	id         string
	body       string
	attributes map[string]attribute
	sender     string
	sent       time.Time
	visible    time.Time // hidden before
	received   int       // how often
	first      time.Time // when for the first time
}

// attribute is a message attribute.
type attribute struct {
	DataType    string
	StringValue *string `json:",omitempty"`
	BinaryValue []byte  `json:",omitempty"`
}

func (q *queue) duration(setting string) time.Duration {
	n := 0
	// Settings were checked when they were made.
	_, _ = fmt.Sscan(q.attributes[setting], &n)
	return time.Duration(n) * time.Second
}

// wake wakes all receivers that wait on the queue.
func (q *queue) wake() {
	close(q.changed)
	q.changed = make(chan struct{})
}

// expire forgets messages that are older than the queue keeps them.
func (q *queue) expire(now time.Time) {
	oldest := now.Add(-q.duration("MessageRetentionPeriod"))
	q.messages = slices.DeleteFunc(q.messages, func(m *message) bool { return m.sent.Before(oldest) })
}

func (q *queue) send(m *message) {
	q.messages = append(q.messages, m)
	q.wake()
}

// take receives up to limit visible messages and hides them until a time.
func (q *queue) take(now, until time.Time, limit int) []message {
	q.expire(now)
	var out []message
	for _, m := range q.messages {
		if len(out) == limit {
			break
		}
		if m.visible.After(now) {
			continue
		}
		m.received++
		m.visible = until
		if m.first.IsZero() {
			m.first = now
		}
		taken := *m
		taken.attributes = maps.Clone(m.attributes)
		out = append(out, taken)
	}
	return out
}

// nextVisible returns when the first hidden message comes back, or zero.
func (q *queue) nextVisible() time.Time {
	var next time.Time
	for _, m := range q.messages {
		if next.IsZero() || m.visible.Before(next) {
			next = m.visible
		}
	}
	return next
}

func (q *queue) find(id string) *message {
	at := slices.IndexFunc(q.messages, func(m *message) bool { return m.id == id })
	if at < 0 {
		return nil
	}
	return q.messages[at]
}

// remove deletes a message; that it is gone already is no error.
func (q *queue) remove(id string) {
	q.messages = slices.DeleteFunc(q.messages, func(m *message) bool { return m.id == id })
}

// counts are the messages that could be received, that are being worked on, and that were sent with a delay.
func (q *queue) counts(now time.Time) (ready, inFlight, delayed int) {
	q.expire(now)
	for _, m := range q.messages {
		switch {
		case !m.visible.After(now):
			ready++
		case m.received > 0:
			inFlight++
		default:
			delayed++
		}
	}
	return ready, inFlight, delayed
}

// A receipt handle names the message and the receipt.

func (m *message) handle() string { return fmt.Sprintf("%s#%d", m.id, m.received) }

// messageOf returns the message of a receipt handle.
func messageOf(handle string) (id string, err error) {
	if handle == "" {
		return "", missing("ReceiptHandle")
	}
	id, receipt, ok := strings.Cut(handle, "#")
	if !ok || len(id) != 36 || receipt == "" {
		return "", apiError(
			"ReceiptHandleIsInvalid",
			"ReceiptHandleIsInvalid",
			"The input receipt handle %q is not a valid receipt handle.",
			handle,
		)
	}
	return id, nil
}
