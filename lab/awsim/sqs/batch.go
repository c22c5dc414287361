package sqs

import (
	"errors"
	"regexp"

	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

const maxBatch = 10

var entryID = regexp.MustCompile(`^[\w-]{1,80}$`)

type deleteBatchInput struct {
	Entries []struct {
		ID            string `json:"Id"`
		ReceiptHandle string
	}
	QueueURL string `json:"QueueUrl"`
}

type batchOutput struct {
	Successful []batchDone
	Failed     []batchFailed
}

type batchDone struct {
	ID string `json:"Id"`
}

type batchFailed struct {
	Code        string
	ID          string `json:"Id"`
	Message     string
	SenderFault bool
}

func (s *SQS) deleteMessageBatch(_ *protocol.Request, in *deleteBatchInput) (*batchOutput, error) {
	ids := make([]string, 0, len(in.Entries))
	for _, entry := range in.Entries {
		ids = append(ids, entry.ID)
	}
	if err := checkBatch(ids); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.find(in.QueueURL)
	if err != nil {
		return nil, err
	}
	out := &batchOutput{Successful: []batchDone{}, Failed: []batchFailed{}}
	for _, entry := range in.Entries {
		var refused *protocol.Error
		if err := q.drop(entry.ReceiptHandle); errors.As(err, &refused) {
			out.Failed = append(out.Failed, batchFailed{ID: entry.ID, Code: refused.QueryCode, Message: refused.Message, SenderFault: true})
			continue
		}
		out.Successful = append(out.Successful, batchDone{entry.ID})
	}
	return out, nil
}

func checkBatch(ids []string) error {
	const family = "AWS.SimpleQueueService."
	if len(ids) == 0 {
		return apiError(
			"EmptyBatchRequest",
			family+"EmptyBatchRequest",
			"There should be at least one DeleteMessageBatchRequestEntry in the request.",
		)
	}
	if len(ids) > maxBatch {
		return apiError(
			"TooManyEntriesInBatchRequest",
			family+"TooManyEntriesInBatchRequest",
			"Maximum number of entries per request are %d. You have sent %d.",
			maxBatch,
			len(ids),
		)
	}
	seen := map[string]bool{}
	for _, id := range ids {
		if !entryID.MatchString(id) {
			return apiError(
				"InvalidBatchEntryId",
				family+"InvalidBatchEntryId",
				"A batch entry id can only contain alphanumeric characters, hyphens and underscores. It can be at most 80 letters long.",
			)
		}
		if seen[id] {
			return apiError("BatchEntryIdsNotDistinct", family+"BatchEntryIdsNotDistinct", "Id %s repeated.", id)
		}
		seen[id] = true
	}
	return nil
}
