package sqs

import (
	"context"
	"crypto/md5"
	"encoding/binary"
	"encoding/hex"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

type sendInput struct {
	DelaySeconds            *int
	MessageAttributes       map[string]attribute
	MessageBody             string
	MessageDeduplicationID  string `json:"MessageDeduplicationId"`
	MessageGroupID          string `json:"MessageGroupId"`
	MessageSystemAttributes map[string]attribute
	QueueURL                string `json:"QueueUrl"`
}

type sendOutput struct {
	MD5OfMessageAttributes string `json:",omitempty"`
	MD5OfMessageBody       string
	MessageID              string `json:"MessageId"`
}

func (s *SQS) sendMessage(r *protocol.Request, in *sendInput) (*sendOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.find(in.QueueURL)
	if err != nil {
		return nil, err
	}
	if err := q.check(in); err != nil {
		return nil, err
	}
	delay := q.duration("DelaySeconds")
	if in.DelaySeconds != nil {
		delay = time.Duration(*in.DelaySeconds) * time.Second
	}
	now := s.cfg.Clock.Now()
	m := &message{
		id: s.newID(), body: in.MessageBody, attributes: maps.Clone(in.MessageAttributes), sender: r.Principal.UserID,
		sent: now, visible: now.Add(delay),
	}
	q.send(m)
	r.Touch(m.id)
	return &sendOutput{
		MessageID:              m.id,
		MD5OfMessageBody:       digest([]byte(m.body)),
		MD5OfMessageAttributes: attributesDigest(m.attributes),
	}, nil
}

var attributeType = regexp.MustCompile(`^(String|Number|Binary)(\.[\w.-]+)?$`)

func (q *queue) check(in *sendInput) error {
	size := len(in.MessageBody)
	for name, a := range in.MessageAttributes {
		if !attributeType.MatchString(a.DataType) || (a.BinaryValue == nil) == (a.StringValue == nil) ||
			strings.HasPrefix(a.DataType, "Binary") != (a.BinaryValue != nil) {
			return invalidValue("The message attribute '%s' must contain a value that suits its type.", name)
		}
		size += len(name) + len(a.DataType) + len(a.value())
	}
	limit, err := strconv.Atoi(q.attributes["MaximumMessageSize"])
	switch {
	case err != nil:
		return err
	case in.MessageBody == "":
		return missing("MessageBody")
	case size > limit:
		return invalidValue("One or more parameters are invalid. Reason: Message must be shorter than %d bytes.", limit)
	case len(in.MessageAttributes) > 10:
		return invalidValue("Number of message attributes [%d] exceeds the allowed maximum [10].", len(in.MessageAttributes))
	case in.DelaySeconds != nil && (*in.DelaySeconds < 0 || *in.DelaySeconds > 900):
		return invalidValue("Value %d for parameter DelaySeconds is invalid. Reason: DelaySeconds must be >= 0 and <= 900.", *in.DelaySeconds)
	case in.MessageDeduplicationID != "", in.MessageGroupID != "":
		return invalidValue("The request include parameter that is not valid for this queue type")
	case len(in.MessageSystemAttributes) > 0:
		return apiError(
			"UnsupportedOperation",
			"AWS.SimpleQueueService.UnsupportedOperation",
			"The simulator does not support system attributes of messages",
		)
	}
	return nil
}

func (a attribute) value() []byte {
	if a.StringValue != nil {
		return []byte(*a.StringValue)
	}
	return a.BinaryValue
}

func digest(data []byte) string {
	sum := md5.Sum(data)
	return hex.EncodeToString(sum[:])
}

// attributesDigest is the MD5 of the attributes in the encoding that clients check: each part with its length, sorted
// by name. Empty without attributes.
func attributesDigest(attributes map[string]attribute) string {
	if len(attributes) == 0 {
		return ""
	}
	var data []byte
	part := func(b []byte) {
		data = binary.BigEndian.AppendUint32(data, uint32(len(b)))
		data = append(data, b...)
	}
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		a := attributes[name]
		part([]byte(name))
		part([]byte(a.DataType))
		kind := byte(1)
		if a.BinaryValue != nil {
			kind = 2
		}
		data = append(data, kind)
		part(a.value())
	}
	return digest(data)
}

type receiveInput struct {
	AttributeNames              []string
	MaxNumberOfMessages         *int
	MessageAttributeNames       []string
	MessageSystemAttributeNames []string
	QueueURL                    string `json:"QueueUrl"`
	ReceiveRequestAttemptID     string `json:"ReceiveRequestAttemptId"`
	VisibilityTimeout           *int
	WaitTimeSeconds             *int
}

type receiveOutput struct {
	Messages []jsonMessage `json:",omitempty"`
}

type jsonMessage struct {
	Attributes             map[string]string `json:",omitempty"`
	Body                   string
	MD5OfBody              string
	MD5OfMessageAttributes string               `json:",omitempty"`
	MessageAttributes      map[string]attribute `json:",omitempty"`
	MessageID              string               `json:"MessageId"`
	ReceiptHandle          string
}

func (s *SQS) receiveMessage(r *protocol.Request, in *receiveInput) (*receiveOutput, error) {
	limit, err := within("MaxNumberOfMessages", in.MaxNumberOfMessages, intRange{fallback: 1, least: 1, most: 10})
	if err != nil {
		return nil, err
	}
	if _, err := within("VisibilityTimeout", in.VisibilityTimeout, visibilityRange); err != nil {
		return nil, err
	}
	if _, err := within("WaitTimeSeconds", in.WaitTimeSeconds, intRange{most: 20}); err != nil {
		return nil, err
	}
	if err := checkSystemAttributes(slices.Concat(in.AttributeNames, in.MessageSystemAttributeNames)); err != nil {
		return nil, err
	}
	taken, err := s.poll(r.HTTP.Context(), in, limit)
	if err != nil {
		return nil, err
	}
	out := &receiveOutput{}
	for _, m := range taken {
		out.Messages = append(out.Messages, m.json(in))
	}
	return out, nil
}

// poll takes messages, waiting for the first as long as the request or the queue states, or until ctx is done.
func (s *SQS) poll(ctx context.Context, in *receiveInput, limit int) ([]message, error) {
	var deadline time.Time
	for ctx.Err() == nil {
		s.mu.Lock()
		q, err := s.find(in.QueueURL)
		if err != nil {
			s.mu.Unlock()
			return nil, err
		}
		now := s.cfg.Clock.Now()
		if deadline.IsZero() {
			deadline = now.Add(q.either(in.WaitTimeSeconds, "ReceiveMessageWaitTimeSeconds"))
		}
		taken := q.take(now, now.Add(q.either(in.VisibilityTimeout, "VisibilityTimeout")), limit)
		until, changed := deadline, q.changed
		if next := q.nextVisible(); !next.IsZero() && next.Before(until) {
			until = next
		}
		s.mu.Unlock()
		if len(taken) > 0 || !now.Before(deadline) {
			return taken, nil
		}
		s.wait(ctx, until.Sub(now), changed)
	}
	return nil, nil // nobody waits for the answer any more
}

// wait returns after d, when changed closes, or when ctx is done.
func (s *SQS) wait(ctx context.Context, d time.Duration, changed <-chan struct{}) {
	due := make(chan struct{})
	cancel := s.cfg.Clock.AfterFunc(d, func() { close(due) })
	defer cancel()
	select {
	case <-ctx.Done():
	case <-changed:
	case <-due:
	}
}

// either is the duration that the request gives in seconds, or else the queue's setting.
func (q *queue) either(seconds *int, setting string) time.Duration {
	if seconds != nil {
		return time.Duration(*seconds) * time.Second
	}
	return q.duration(setting)
}

// intRange is the allowed range of a parameter, and its value if it is absent.
type intRange struct{ fallback, least, most int }

// visibilityRange is SQS's range of VisibilityTimeout in seconds: up to twelve hours.
var visibilityRange = intRange{most: 43200}

func within(name string, given *int, r intRange) (int, error) {
	if given == nil {
		return r.fallback, nil
	}
	if *given < r.least || *given > r.most {
		return 0, invalidValue(
			"Value %d for parameter %s is invalid. Reason: Must be between %d and %d, if provided.",
			*given,
			name,
			r.least,
			r.most,
		)
	}
	return *given, nil
}

// systemAttributes are what a queue knows of its messages.
func (m *message) systemAttributes() map[string]string {
	return map[string]string{
		"ApproximateFirstReceiveTimestamp": strconv.FormatInt(m.first.UnixMilli(), 10),
		"ApproximateReceiveCount":          strconv.Itoa(m.received),
		"SenderId":                         m.sender,
		"SentTimestamp":                    strconv.FormatInt(m.sent.UnixMilli(), 10),
	}
}

// absentAttributes are system attributes that messages of these queues never have.
var absentAttributes = []string{
	"AWSTraceHeader",
	"DeadLetterQueueSourceArn",
	"MessageDeduplicationId",
	"MessageGroupId",
	"SequenceNumber",
}

func checkSystemAttributes(names []string) error {
	known := (&message{}).systemAttributes()
	for _, name := range names {
		if _, ok := known[name]; !ok && name != "All" && !slices.Contains(absentAttributes, name) {
			return apiError("InvalidAttributeName", "InvalidAttributeName", "Unknown Attribute %s.", name)
		}
	}
	return nil
}

func (m *message) json(in *receiveInput) jsonMessage {
	out := jsonMessage{
		Body: m.body, MD5OfBody: digest([]byte(m.body)), MessageID: m.id, ReceiptHandle: m.handle(),
		Attributes: map[string]string{}, MessageAttributes: map[string]attribute{},
	}
	wanted := slices.Concat(in.AttributeNames, in.MessageSystemAttributeNames)
	for name, value := range m.systemAttributes() {
		if slices.Contains(wanted, name) || slices.Contains(wanted, "All") {
			out.Attributes[name] = value
		}
	}
	for name, a := range m.attributes {
		if slices.ContainsFunc(in.MessageAttributeNames, func(pattern string) bool { return selects(pattern, name) }) {
			out.MessageAttributes[name] = a
		}
	}
	out.MD5OfMessageAttributes = attributesDigest(out.MessageAttributes)
	return out
}

// selects reports whether a name in MessageAttributeNames matches the attribute: by name, "All", ".*" or "prefix.*".
func selects(pattern, name string) bool {
	if prefix, ok := strings.CutSuffix(pattern, ".*"); ok {
		return strings.HasPrefix(name, prefix)
	}
	return pattern == "All" || pattern == name
}

type deleteInput struct {
	QueueURL      string `json:"QueueUrl"`
	ReceiptHandle string
}

func (s *SQS) deleteMessage(_ *protocol.Request, in *deleteInput) (*struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.find(in.QueueURL)
	if err != nil {
		return nil, err
	}
	return nil, q.drop(in.ReceiptHandle)
}

// drop deletes the message of a receipt handle.
func (q *queue) drop(handle string) error {
	id, err := messageOf(handle)
	if err != nil {
		return err
	}
	q.remove(id)
	return nil
}

type visibilityInput struct {
	QueueURL          string `json:"QueueUrl"`
	ReceiptHandle     string
	VisibilityTimeout *int
}

func (s *SQS) changeMessageVisibility(_ *protocol.Request, in *visibilityInput) (*struct{}, error) {
	if in.VisibilityTimeout == nil {
		return nil, missing("VisibilityTimeout")
	}
	seconds, err := within("VisibilityTimeout", in.VisibilityTimeout, visibilityRange)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.find(in.QueueURL)
	if err != nil {
		return nil, err
	}
	id, err := messageOf(in.ReceiptHandle)
	if err != nil {
		return nil, err
	}
	now := s.cfg.Clock.Now()
	m := q.find(id)
	if m == nil {
		return nil, invalidValue(
			"Value %s for parameter ReceiptHandle is invalid. Reason: Message does not exist or is not available for visibility timeout change.",
			in.ReceiptHandle,
		)
	}
	if !m.visible.After(now) {
		return nil, apiError("MessageNotInflight", "AWS.SimpleQueueService.MessageNotInflight", "The message referred to is not in flight.")
	}
	m.visible = now.Add(time.Duration(seconds) * time.Second)
	q.wake()
	return nil, nil
}
