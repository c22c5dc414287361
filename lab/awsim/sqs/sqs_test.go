package sqs_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/google/go-cmp/cmp"

	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/awsim/awsimtest"
)

type world struct {
	*awsimtest.World
	*sqs.Client
	queue *string // URL
}

func start(t *testing.T, attributes map[string]string) *world {
	t.Helper()
	w := awsimtest.Start(t)
	c := sqs.NewFromConfig(w.Config)
	out := awsimtest.OK(c.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: aws.String("c1"), Attributes: attributes}))(t)
	return &world{w, c, out.QueueUrl}
}

func (w *world) send(t *testing.T, body string) {
	t.Helper()
	awsimtest.OK(w.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: w.queue, MessageBody: &body}))(t)
}

func (w *world) receive(t *testing.T, in sqs.ReceiveMessageInput) []types.Message {
	t.Helper()
	in.QueueUrl = w.queue
	if in.MaxNumberOfMessages == 0 {
		in.MaxNumberOfMessages = 10
	}
	return awsimtest.OK(w.ReceiveMessage(t.Context(), &in))(t).Messages
}

func bodies(messages []types.Message) string {
	var out []string
	for _, m := range messages {
		out = append(out, *m.Body)
	}
	return strings.Join(out, " ")
}

func TestQueue(t *testing.T) {
	w := start(t, map[string]string{"MessageRetentionPeriod": "300", "SqsManagedSseEnabled": "true"})
	if want := w.URL + "/111122223333/c1"; *w.queue != want {
		t.Errorf("URL %s, want %s", *w.queue, want)
	}
	if got := awsimtest.OK(w.GetQueueUrl(t.Context(), &sqs.GetQueueUrlInput{QueueName: aws.String("c1")}))(t); *got.QueueUrl != *w.queue {
		t.Errorf("GetQueueUrl says %s, CreateQueue said %s", *got.QueueUrl, *w.queue)
	}
	w.send(t, "a")
	w.send(t, "b")
	w.receive(t, sqs.ReceiveMessageInput{MaxNumberOfMessages: 1})
	got := awsimtest.OK(
		w.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: w.queue, AttributeNames: []types.QueueAttributeName{"All"}}),
	)(
		t,
	).Attributes
	now := strconv.FormatInt(w.Clock.Now().Unix(), 10)
	want := map[string]string{
		"QueueArn": "arn:aws:sqs:us-east-1:111122223333:c1", "MessageRetentionPeriod": "300", "VisibilityTimeout": "30", "DelaySeconds": "0",
		"ReceiveMessageWaitTimeSeconds": "0", "MaximumMessageSize": "1048576", "SqsManagedSseEnabled": "true", "ApproximateNumberOfMessages": "1",
		"ApproximateNumberOfMessagesNotVisible": "1", "ApproximateNumberOfMessagesDelayed": "0", "CreatedTimestamp": now,
		"LastModifiedTimestamp": now,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("attributes (-want +got):\n%s", diff)
	}
	one := awsimtest.OK(
		w.GetQueueAttributes(
			t.Context(),
			&sqs.GetQueueAttributesInput{QueueUrl: w.queue, AttributeNames: []types.QueueAttributeName{"QueueArn", "Policy"}},
		),
	)(
		t,
	)
	if len(one.Attributes) != 1 {
		t.Errorf("ARN and policy of a queue without policy: %v", one.Attributes)
	}
	awsimtest.OK(
		w.CreateQueue(
			t.Context(),
			&sqs.CreateQueueInput{QueueName: aws.String("c1"), Attributes: map[string]string{"MessageRetentionPeriod": "300"}},
		),
	)(
		t,
	)
	if _, err := w.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: aws.String("c1"), Attributes: map[string]string{"MessageRetentionPeriod": "301"}}); awsimtest.Code(
		err,
	) != "QueueAlreadyExists" {
		t.Errorf("again, and otherwise: %v, want QueueAlreadyExists", err)
	}
}

// A message that was received is hidden until it is deleted or its visibility timeout finishes.
func TestVisibility(t *testing.T) {
	w := start(t, nil)
	for _, body := range []string{"a", "b", "c"} {
		w.send(t, body)
		w.Clock.Advance(time.Second)
	}
	sent := strconv.FormatInt(w.Clock.Now().Add(-3*time.Second).UnixMilli(), 10)
	first := w.receive(
		t,
		sqs.ReceiveMessageInput{
			MaxNumberOfMessages:         2,
			VisibilityTimeout:           20,
			MessageSystemAttributeNames: []types.MessageSystemAttributeName{"All"},
		},
	)
	if got := bodies(first); got != "a b" {
		t.Fatalf("received %q, want a and b", got)
	}
	want := map[string]string{
		"SentTimestamp":                    sent,
		"ApproximateReceiveCount":          "1",
		"SenderId":                         "111122223333",
		"ApproximateFirstReceiveTimestamp": strconv.FormatInt(w.Clock.Now().UnixMilli(), 10),
	}
	if diff := cmp.Diff(want, first[0].Attributes); diff != "" {
		t.Errorf("attributes of the message (-want +got):\n%s", diff)
	}
	awsimtest.OK(w.DeleteMessage(t.Context(), &sqs.DeleteMessageInput{QueueUrl: w.queue, ReceiptHandle: first[0].ReceiptHandle}))(t)
	awsimtest.OK(
		w.DeleteMessage(t.Context(), &sqs.DeleteMessageInput{QueueUrl: w.queue, ReceiptHandle: first[0].ReceiptHandle}),
	)(
		t,
	) // once more is fine
	if got := bodies(w.receive(t, sqs.ReceiveMessageInput{})); got != "c" {
		t.Errorf("while a and b are hidden: %q, want c", got)
	}
	w.Clock.Advance(19 * time.Second)
	if got := bodies(w.receive(t, sqs.ReceiveMessageInput{})); got != "" {
		t.Errorf("before the timeout: %q, want nothing", got)
	}
	w.Clock.Advance(time.Second)
	//lint:ignore SA1019 clients in the field still send the old parameter
	again := w.receive(t, sqs.ReceiveMessageInput{AttributeNames: []types.QueueAttributeName{"ApproximateReceiveCount", "SequenceNumber"}})
	if got := bodies(again); got != "b" || again[0].Attributes["ApproximateReceiveCount"] != "2" {
		t.Fatalf("after the timeout: %q %v, want b for the second time", got, again)
	}
	change := func(seconds int32) error {
		_, err := w.ChangeMessageVisibility(
			t.Context(),
			&sqs.ChangeMessageVisibilityInput{QueueUrl: w.queue, ReceiptHandle: again[0].ReceiptHandle, VisibilityTimeout: seconds},
		)
		return err
	}
	if err := change(0); err != nil {
		t.Fatal(err)
	}
	if err := change(10); awsimtest.Code(err) != "AWS.SimpleQueueService.MessageNotInflight" {
		t.Errorf("change of a message that nobody works on: %v, want MessageNotInflight", err)
	}
	if got := bodies(w.receive(t, sqs.ReceiveMessageInput{})); got != "b" {
		t.Errorf("after giving it back: %q, want b", got)
	}
}

func TestRetentionAndDelay(t *testing.T) {
	w := start(t, map[string]string{"MessageRetentionPeriod": "300"})
	w.send(t, "old")
	w.Clock.Advance(301 * time.Second)
	awsimtest.OK(w.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: w.queue, MessageBody: aws.String("late"), DelaySeconds: 5}))(t)
	if got := bodies(w.receive(t, sqs.ReceiveMessageInput{})); got != "" {
		t.Errorf("an expired and a delayed message: %q, want nothing", got)
	}
	w.Clock.Advance(5 * time.Second)
	if got := bodies(w.receive(t, sqs.ReceiveMessageInput{})); got != "late" {
		t.Errorf("after the delay: %q, want late", got)
	}
}

func TestMessageAttributes(t *testing.T) {
	w := start(t, nil)
	sent := map[string]types.MessageAttributeValue{
		"kind": {
			DataType:    aws.String("String"),
			StringValue: aws.String("x"),
		}, "raw": {DataType: aws.String("Binary"), BinaryValue: []byte{1, 2}},
	}
	awsimtest.OK(
		w.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: w.queue, MessageBody: aws.String("m"), MessageAttributes: sent}),
	)(
		t,
	)
	got := w.receive(t, sqs.ReceiveMessageInput{MessageAttributeNames: []string{"All"}})
	if len(got) != 1 || *got[0].MessageAttributes["kind"].StringValue != "x" ||
		string(got[0].MessageAttributes["raw"].BinaryValue) != "\x01\x02" {
		t.Errorf("attributes come back as %v", got)
	}
	wrong := map[string]types.MessageAttributeValue{"kind": {DataType: aws.String("Binary"), StringValue: aws.String("x")}}
	if _, err := w.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: w.queue, MessageBody: aws.String("m"), MessageAttributes: wrong}); awsimtest.Code(
		err,
	) != "InvalidParameterValue" {
		t.Errorf("a string called binary: %v, want InvalidParameterValue", err)
	}
}

func TestDeleteBatch(t *testing.T) {
	w := start(t, nil)
	w.send(t, "a")
	w.send(t, "b")
	var entries []types.DeleteMessageBatchRequestEntry
	for i, m := range w.receive(t, sqs.ReceiveMessageInput{}) {
		entries = append(entries, types.DeleteMessageBatchRequestEntry{Id: aws.String(fmt.Sprint(i)), ReceiptHandle: m.ReceiptHandle})
	}
	bad := types.DeleteMessageBatchRequestEntry{Id: aws.String("bad"), ReceiptHandle: aws.String("handle")}
	out := awsimtest.OK(
		w.DeleteMessageBatch(t.Context(), &sqs.DeleteMessageBatchInput{QueueUrl: w.queue, Entries: append(entries, bad)}),
	)(
		t,
	)
	if len(out.Successful) != 2 || len(out.Failed) != 1 || *out.Failed[0].Id != "bad" || *out.Failed[0].Code != "ReceiptHandleIsInvalid" ||
		!out.Failed[0].SenderFault {
		t.Errorf("batch: done %v, failed %v", out.Successful, out.Failed)
	}
	w.Clock.Advance(time.Hour)
	if got := bodies(w.receive(t, sqs.ReceiveMessageInput{})); got != "" {
		t.Errorf("left after the batch: %q", got)
	}
}

func TestErrors(t *testing.T) {
	w := start(t, nil)
	ctx := t.Context()
	var gone *types.QueueDoesNotExist
	if _, err := w.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: aws.String("none")}); !errors.As(err, &gone) {
		t.Errorf("queue missing: %v, which the SDK does not know as QueueDoesNotExist", err)
	}
	receive := func(in sqs.ReceiveMessageInput) error {
		if in.QueueUrl == nil {
			in.QueueUrl = w.queue
		}
		_, err := w.ReceiveMessage(ctx, &in)
		return err
	}
	create := func(name string, attributes map[string]string) error {
		_, err := w.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: &name, Attributes: attributes})
		return err
	}
	batch := func(ids ...string) error {
		entries := []types.DeleteMessageBatchRequestEntry{}
		for _, id := range ids {
			entries = append(entries, types.DeleteMessageBatchRequestEntry{Id: &id, ReceiptHandle: aws.String("x")})
		}
		_, err := w.DeleteMessageBatch(ctx, &sqs.DeleteMessageBatchInput{QueueUrl: w.queue, Entries: entries})
		return err
	}
	_, noName := w.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: aws.String("")})
	_, otherOwner := w.GetQueueUrl(
		ctx,
		&sqs.GetQueueUrlInput{QueueName: aws.String("c1"), QueueOwnerAWSAccountId: aws.String("999999999999")},
	)
	_, badHandle := w.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: w.queue, ReceiptHandle: aws.String("handle")})
	_, noBody := w.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: w.queue, MessageBody: aws.String("")})
	_, tooLong := w.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: w.queue, MessageBody: aws.String(strings.Repeat("x", 1<<20+1))})
	_, badAttribute := w.GetQueueAttributes(
		ctx,
		&sqs.GetQueueAttributesInput{QueueUrl: w.queue, AttributeNames: []types.QueueAttributeName{"Colour"}},
	)
	const family = "AWS.SimpleQueueService."
	for _, row := range []struct {
		what, code string
		err        error
	}{
		{"no name", "MissingParameter", noName},
		{"queue of another account", family + "NonExistentQueue", otherOwner},
		{"queue URL of nobody", "InvalidAddress", receive(sqs.ReceiveMessageInput{QueueUrl: aws.String("https://example.com/queue")})},
		{"queue URL of a queue that is not", family + "NonExistentQueue", receive(sqs.ReceiveMessageInput{QueueUrl: aws.String(*w.queue + "x")})},
		{"eleven messages", "InvalidParameterValue", receive(sqs.ReceiveMessageInput{MaxNumberOfMessages: 11})},
		{"wait too long", "InvalidParameterValue", receive(sqs.ReceiveMessageInput{WaitTimeSeconds: 21})},
		{"hide too long", "InvalidParameterValue", receive(sqs.ReceiveMessageInput{VisibilityTimeout: 43201})},
		{
			"message attribute unknown", "InvalidAttributeName",
			receive(sqs.ReceiveMessageInput{MessageSystemAttributeNames: []types.MessageSystemAttributeName{"Colour"}}),
		},
		{"receipt handle of nobody", "ReceiptHandleIsInvalid", badHandle},
		{"no body", "MissingParameter", noBody},
		{"body too long", "InvalidParameterValue", tooLong},
		{"queue attribute unknown", "InvalidAttributeName", badAttribute},
		{"queue name with a dot", "InvalidParameterValue", create("a.b", nil)},
		{"setting out of range", "InvalidAttributeValue", create("q", map[string]string{"VisibilityTimeout": "43201"})},
		{"setting unknown", "InvalidAttributeName", create("q", map[string]string{"Colour": "red"})},
		{"FIFO queue", family + "UnsupportedOperation", create("q", map[string]string{"FifoQueue": "true"})},
		{"empty batch", family + "EmptyBatchRequest", batch()},
		{"batch of eleven", family + "TooManyEntriesInBatchRequest", batch("1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11")},
		{"batch with an ID twice", family + "BatchEntryIdsNotDistinct", batch("1", "1")},
		{"batch with a bad ID", family + "InvalidBatchEntryId", batch("a b")},
	} {
		if code := awsimtest.Code(row.err); code != row.code {
			t.Errorf("%s: %v, want %s", row.what, row.err, row.code)
		}
	}
	none := w.As(awsim.Credentials{AccessKeyID: "AKIANONE", SecretAccessKey: "x"})
	if _, err := sqs.NewFromConfig(none).GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: aws.String("c1")}); awsimtest.Code(
		err,
	) != "UnrecognizedClientException" {
		t.Errorf("a stranger's key: %v, want UnrecognizedClientException", err)
	}
}
