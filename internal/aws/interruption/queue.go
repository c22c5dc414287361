package interruption

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/dovetail-k8s/dovetail/internal/aws/awserrors"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

const (
	// Batch is SQS's limit for the messages of one call.
	Batch = 10
	// Visibility sets how long a received message is hidden. SQS delivers it again unless it is deleted by then.
	Visibility = 20 * time.Second
	// LongestWait is SQS's limit for the time that a call waits for the first message.
	LongestWait = 20 * time.Second
)

// QueueAPI is the calls of SQS that Queue makes.
type QueueAPI interface {
	GetQueueUrl(ctx context.Context, in *sqs.GetQueueUrlInput, optFns ...func(*sqs.Options)) (*sqs.GetQueueUrlOutput, error)
	ReceiveMessage(ctx context.Context, in *sqs.ReceiveMessageInput, optFns ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error)
	DeleteMessageBatch(
		ctx context.Context,
		in *sqs.DeleteMessageBatchInput,
		optFns ...func(*sqs.Options),
	) (*sqs.DeleteMessageBatchOutput, error)
}

// Queue is an SQS queue with events of EventBridge. It is safe for concurrent use.
type Queue struct {
	api  QueueAPI
	name string

	mu  sync.Mutex
	url string // empty until it is known
}

// NewQueue returns the queue with the name. It makes no call.
func NewQueue(api QueueAPI, name string) *Queue { return &Queue{api: api, name: name} }

// Name is the queue's name.
func (q *Queue) Name() string { return q.name }

// Receive returns the next messages, at most Batch, and hides them for Visibility. It waits up to wait for the first
// message, and may return none. The error is a cloudprovider.UnavailableError if the queue does not exist or access is
// denied.
func (q *Queue) Receive(ctx context.Context, wait time.Duration) ([]cloudprovider.Message, error) {
	url, err := q.find(ctx)
	if err != nil {
		return nil, err
	}
	out, err := q.api.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
		QueueUrl: aws.String(url), MaxNumberOfMessages: Batch, VisibilityTimeout: int32(Visibility / time.Second),
		WaitTimeSeconds:             int32(min(wait, LongestWait) / time.Second),
		MessageSystemAttributeNames: []sqstypes.MessageSystemAttributeName{sqstypes.MessageSystemAttributeNameSentTimestamp},
		MessageAttributeNames:       []string{string(sqstypes.QueueAttributeNameAll)},
	})
	if err != nil {
		return nil, q.explain("receive messages", err)
	}
	messages := make([]cloudprovider.Message, len(out.Messages))
	for i, m := range out.Messages {
		messages[i] = read(m)
	}
	return messages, nil
}

// read returns a message with its parsed body.
func read(m sqstypes.Message) cloudprovider.Message {
	out, err := Parse(aws.ToString(m.Body))
	out.Unreadable = err
	out.ID, out.Receipt = aws.ToString(m.MessageId), aws.ToString(m.ReceiptHandle)
	if ms, err := strconv.ParseInt(m.Attributes[string(sqstypes.MessageSystemAttributeNameSentTimestamp)], 10, 64); err == nil {
		out.Sent = time.UnixMilli(ms)
	}
	if out.At.IsZero() {
		out.At = out.Sent
	}
	return out
}

// Delete deletes messages, at most Batch at once, and returns how many it deleted.
func (q *Queue) Delete(ctx context.Context, messages []cloudprovider.Message) (int, error) {
	if len(messages) == 0 {
		return 0, nil
	}
	url, err := q.find(ctx)
	if err != nil {
		return 0, err
	}
	in := &sqs.DeleteMessageBatchInput{QueueUrl: aws.String(url)}
	for i, m := range messages {
		in.Entries = append(
			in.Entries,
			sqstypes.DeleteMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), ReceiptHandle: aws.String(m.Receipt)},
		)
	}
	out, err := q.api.DeleteMessageBatch(ctx, in)
	if err != nil {
		return 0, q.explain("delete messages", err)
	}
	var errs []error
	for _, f := range out.Failed {
		errs = append(errs, fmt.Errorf("delete a message: %s: %s", aws.ToString(f.Code), aws.ToString(f.Message)))
	}
	return len(out.Successful), errors.Join(errs...)
}

// find reads the queue's URL, once.
func (q *Queue) find(ctx context.Context) (string, error) {
	q.mu.Lock()
	url := q.url
	q.mu.Unlock()
	if url != "" {
		return url, nil
	}
	out, err := q.api.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: aws.String(q.name)})
	if err != nil {
		return "", q.explain("find it", err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.url = aws.ToString(out.QueueUrl)
	return q.url, nil
}

// explain turns an error into one that names the cause and the fix.
func (q *Queue) explain(what string, err error) error {
	var missing *sqstypes.QueueDoesNotExist
	switch {
	case errors.As(err, &missing):
		q.mu.Lock()
		q.url = "" // it may be created again
		q.mu.Unlock()
		return &cloudprovider.UnavailableError{
			Reason: "QueueDoesNotExist", Err: err,
			Message: fmt.Sprintf(
				"the interruption queue %q does not exist in this account and region: create it, or correct settings.interruptionQueue",
				q.name,
			),
		}
	case awserrors.Is(err, awserrors.Unauthorized):
		return &cloudprovider.UnavailableError{
			Reason: "AccessDenied", Err: err,
			Message: fmt.Sprintf(
				"the controller is not allowed to use the interruption queue %q: allow sqs:GetQueueUrl, sqs:ReceiveMessage and sqs:DeleteMessage for its role, and remove any statement of the queue policy that denies them:  %s",
				q.name,
				awserrors.WithoutRequestIDs(err),
			),
		}
	}
	return fmt.Errorf("interruption queue %q: %s: %w", q.name, what, awserrors.WithoutRequestIDs(err))
}
