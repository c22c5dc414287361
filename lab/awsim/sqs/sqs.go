// Package sqs simulates Amazon SQS: standard queues with visibility timeouts, delays, retention and long polls.
//
// FIFO queues, dead-letter queues and encryption with customer keys are rejected. Messages come in the order in which
// they were sent, which the real service does not promise.
package sqs

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/dovetail-k8s/dovetail/lab/awsim/clock"
	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

// Config is what the SQS of a region needs.
type Config struct {
	Region    string
	AccountID string
	Seed      uint64
	Clock     clock.Clock
}

// SQS holds the queues of one account and region. It is safe for concurrent use.
type SQS struct {
	cfg Config

	mu     sync.Mutex
	issued uint64
	queues map[string]*queue
}

// New returns a region without queues.
func New(cfg Config) *SQS { return &SQS{cfg: cfg, queues: map[string]*queue{}} }

// Service returns the API handlers of SQS.
func (s *SQS) Service() protocol.Service {
	return protocol.Service{
		Name: "sqs", Protocol: protocol.JSON10, Permissions: s.requiredPermissions,
		Handlers: map[string]protocol.Handler{
			"ChangeMessageVisibility": protocol.JSON(s.changeMessageVisibility),
			"CreateQueue":             protocol.JSON(s.createQueue),
			"DeleteMessage":           protocol.JSON(s.deleteMessage),
			"DeleteMessageBatch":      protocol.JSON(s.deleteMessageBatch),
			"DeleteQueue":             protocol.JSON(s.deleteQueue),
			"GetQueueAttributes":      protocol.JSON(s.getQueueAttributes),
			"GetQueueUrl":             protocol.JSON(s.getQueueURL),
			"ReceiveMessage":          protocol.JSON(s.receiveMessage),
			"SendMessage":             protocol.JSON(s.sendMessage),
		},
	}
}

// CreateQueue adds a queue with the given attributes. A queue of that name with the same attributes is left as it is.
func (s *SQS) CreateQueue(name string, attributes map[string]string) error {
	if !queueName.MatchString(name) {
		return invalidValue("Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length")
	}
	settings, err := settingsOf(attributes)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if q, exists := s.queues[name]; exists {
		for setting, value := range attributes {
			if q.attributes[setting] != value {
				return apiError(
					"QueueNameExists",
					"QueueAlreadyExists",
					"A queue already exists with the same name and a different value for attribute %s",
					setting,
				)
			}
		}
		return nil
	}
	now := s.cfg.Clock.Now()
	s.queues[name] = &queue{name: name, created: now, modified: now, attributes: settings, changed: make(chan struct{})}
	return nil
}

// Send puts a message into a queue, as a service of AWS would.
func (s *SQS) Send(queueName, body string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, ok := s.queues[queueName]
	if !ok {
		return noQueue()
	}
	now := s.cfg.Clock.Now()
	q.send(&message{id: s.newID(), body: body, sender: "events.amazonaws.com", sent: now, visible: now.Add(q.duration("DelaySeconds"))})
	return nil
}

// newID makes a message ID. The caller holds the lock.
func (s *SQS) newID() string {
	s.issued++
	sum := sha256.Sum256(fmt.Appendf(nil, "sqs %d %d", s.cfg.Seed, s.issued))
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}

// find returns the queue of a URL. The caller holds the lock.
func (s *SQS) find(url string) (*queue, error) {
	if url == "" {
		return nil, missing("QueueUrl")
	}
	parts := strings.Split(strings.TrimSuffix(url, "/"), "/")
	if len(parts) < 2 || parts[len(parts)-2] != s.cfg.AccountID {
		return nil, apiError("InvalidAddress", "InvalidAddress", "The address %s is not valid for this endpoint.", url)
	}
	q, ok := s.queues[parts[len(parts)-1]]
	if !ok {
		return nil, noQueue()
	}
	return q, nil
}

// url is the address of a queue, at the endpoint to which the request came.
func (s *SQS) url(r *protocol.Request, name string) string {
	scheme := "http"
	if r.HTTP.TLS != nil {
		scheme = "https"
	}
	return scheme + "://" + r.HTTP.Host + "/" + s.cfg.AccountID + "/" + name
}

type createInput struct {
	Attributes map[string]string
	QueueName  string
	Tags       map[string]string `json:"tags"`
}

type urlOutput struct {
	QueueURL string `json:"QueueUrl"`
}

func (s *SQS) createQueue(r *protocol.Request, in *createInput) (*urlOutput, error) {
	switch {
	case in.QueueName == "":
		return nil, missing("QueueName")
	case len(in.Tags) > 0:
		return nil, apiError(
			"UnsupportedOperation",
			"AWS.SimpleQueueService.UnsupportedOperation",
			"The simulator does not support tags of queues",
		)
	}
	if err := s.CreateQueue(in.QueueName, in.Attributes); err != nil {
		return nil, err
	}
	r.Touch(in.QueueName)
	return &urlOutput{s.url(r, in.QueueName)}, nil
}

type getURLInput struct {
	QueueName              string
	QueueOwnerAWSAccountID string `json:"QueueOwnerAWSAccountId"`
}

func (s *SQS) getQueueURL(r *protocol.Request, in *getURLInput) (*urlOutput, error) {
	if in.QueueName == "" {
		return nil, missing("QueueName")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	other := in.QueueOwnerAWSAccountID != "" && in.QueueOwnerAWSAccountID != s.cfg.AccountID
	if _, ok := s.queues[in.QueueName]; !ok || other {
		return nil, noQueue()
	}
	return &urlOutput{s.url(r, in.QueueName)}, nil
}

type queueInput struct {
	QueueURL string `json:"QueueUrl"`
}

func (s *SQS) deleteQueue(r *protocol.Request, in *queueInput) (*struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.find(in.QueueURL)
	if err != nil {
		return nil, err
	}
	delete(s.queues, q.name)
	q.wake() // who polls it learns that it is gone
	r.Touch(q.name)
	return nil, nil
}

type getAttributesInput struct {
	AttributeNames []string
	QueueURL       string `json:"QueueUrl"`
}

type getAttributesOutput struct {
	Attributes map[string]string `json:",omitempty"`
}

func (s *SQS) getQueueAttributes(_ *protocol.Request, in *getAttributesInput) (*getAttributesOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.find(in.QueueURL)
	if err != nil {
		return nil, err
	}
	all := s.describe(q)
	out := &getAttributesOutput{Attributes: map[string]string{}}
	for _, name := range in.AttributeNames {
		if name == "All" {
			return &getAttributesOutput{all}, nil
		}
		value, known := all[name]
		if !known && !slices.Contains(optionalSettings, name) {
			return nil, apiError("InvalidAttributeName", "InvalidAttributeName", "Unknown Attribute %s.", name)
		}
		if known {
			out.Attributes[name] = value
		}
	}
	return out, nil
}

// describe returns all attributes of a queue. The caller holds the lock.
func (s *SQS) describe(q *queue) map[string]string {
	all := maps.Clone(q.attributes)
	ready, inFlight, delayed := q.counts(s.cfg.Clock.Now())
	all["ApproximateNumberOfMessages"] = strconv.Itoa(ready)
	all["ApproximateNumberOfMessagesNotVisible"] = strconv.Itoa(inFlight)
	all["ApproximateNumberOfMessagesDelayed"] = strconv.Itoa(delayed)
	all["CreatedTimestamp"] = strconv.FormatInt(q.created.Unix(), 10)
	all["LastModifiedTimestamp"] = strconv.FormatInt(q.modified.Unix(), 10)
	all["QueueArn"] = "arn:aws:sqs:" + s.cfg.Region + ":" + s.cfg.AccountID + ":" + q.name
	return all
}

var queueName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,80}$`)

// optionalSettings are the settings that a queue need not have.
var optionalSettings = []string{
	"Policy",
	"RedrivePolicy",
	"RedriveAllowPolicy",
	"KmsMasterKeyId",
	"KmsDataKeyReusePeriodSeconds",
	"FifoQueue",
}

// numeric are the settings that are numbers.
var numeric = map[string]struct{ least, most, otherwise int }{
	"DelaySeconds":                  {0, 900, 0},
	"MaximumMessageSize":            {1024, 1048576, 1048576},
	"MessageRetentionPeriod":        {60, 1209600, 345600},
	"ReceiveMessageWaitTimeSeconds": {0, 20, 0},
	"VisibilityTimeout":             {0, 43200, 30},
}

// settingsOf checks the attributes of a new queue and fills in the defaults.
func settingsOf(attributes map[string]string) (map[string]string, error) {
	settings := map[string]string{"SqsManagedSseEnabled": "true"}
	for name, limits := range numeric {
		settings[name] = strconv.Itoa(limits.otherwise)
	}
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		value := attributes[name]
		limits, number := numeric[name]
		n, err := strconv.Atoi(value)
		switch {
		case number && (err != nil || n < limits.least || n > limits.most):
			return nil, badAttribute(name)
		case name == "SqsManagedSseEnabled" && value != "true" && value != "false":
			return nil, badAttribute(name)
		case !number && name != "SqsManagedSseEnabled" && name != "Policy":
			if slices.Contains(optionalSettings, name) {
				return nil, apiError(
					"UnsupportedOperation",
					"AWS.SimpleQueueService.UnsupportedOperation",
					"The simulator does not support the queue attribute %s",
					name,
				)
			}
			return nil, apiError("InvalidAttributeName", "InvalidAttributeName", "Unknown Attribute %s.", name)
		}
		settings[name] = value
	}
	return settings, nil
}

// apiError carries both the code of the JSON protocol and that of the query protocol, which clients still match.
func apiError(code, queryCode, format string, args ...any) error {
	return &protocol.Error{Code: code, QueryCode: queryCode, Message: fmt.Sprintf(format, args...), Status: http.StatusBadRequest}
}

func noQueue() error {
	return apiError("QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue", "The specified queue does not exist.")
}

func missing(parameter string) error {
	return apiError("MissingRequiredParameterException", "MissingParameter", "The request must contain the parameter %s.", parameter)
}

func invalidValue(format string, args ...any) error {
	return apiError("InvalidParameterValueException", "InvalidParameterValue", format, args...)
}

func badAttribute(name string) error {
	return apiError("InvalidAttributeValue", "InvalidAttributeValue", "Invalid value for the parameter %s.", name)
}
