package sqs

import (
	"encoding/json"
	"path"
	"strings"

	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

// requiredPermissions are what a caller must be allowed to do for a call of SQS: on the queue that it names. What is
// done to a batch of messages needs the right to do it to one.
func (s *SQS) requiredPermissions(r *protocol.Request) []protocol.RequiredPermission {
	var body struct {
		QueueName string
		QueueURL  string `json:"QueueUrl"`
	}
	if json.Unmarshal(r.Body, &body) != nil || body.QueueName+body.QueueURL == "" {
		return []protocol.RequiredPermission{{}}
	}
	name := body.QueueName
	if body.QueueURL != "" {
		name = path.Base(body.QueueURL)
	}
	return []protocol.RequiredPermission{{
		Action: "sqs:" + strings.TrimSuffix(r.Action, "Batch"), Resource: "arn:aws:sqs:" + s.cfg.Region + ":" + s.cfg.AccountID + ":" + name,
	}}
}
