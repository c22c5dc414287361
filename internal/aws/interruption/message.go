// Package interruption reads announced interruptions of instances from AWS: EventBridge events in an SQS queue, and the
// status of instances.
package interruption

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// envelope is an event of EventBridge.
type envelope struct {
	Version    string          `json:"version"`
	Source     string          `json:"source"`
	DetailType string          `json:"detail-type"`
	Time       string          `json:"time"`
	Detail     json.RawMessage `json:"detail"`
}

// eventType distinguishes events.
type eventType struct{ source, detailType string }

// parsers parse the details of the events that concern us. All other events are ignored.
var parsers = map[eventType]func(detail json.RawMessage) (cloudprovider.InterruptionKind, []string, error){
	{"aws.ec2", "EC2 Spot Instance Interruption Warning"}:                 always(cloudprovider.SpotInterrupted),
	{"aws.ec2", "EC2 Instance Rebalance Recommendation"}:                  always(cloudprovider.RebalanceRecommended),
	{"aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning"}: always(cloudprovider.ReservationInterrupted),
	{"aws.ec2", "EC2 Instance State-change Notification"}:                 stateChange,
	{"aws.health", "AWS Health Event"}:                                    health,
}

// Parse parses the body of a message. Empty bodies and other events are NoInterruption. An error means that the body is
// not an event, or has unexpected details.
func Parse(body string) (cloudprovider.Message, error) {
	none := cloudprovider.Message{Kind: cloudprovider.NoInterruption}
	if strings.TrimSpace(body) == "" {
		return none, nil
	}
	var e envelope
	if err := json.Unmarshal([]byte(body), &e); err != nil {
		return none, fmt.Errorf("read an event: %w", err)
	}
	out := cloudprovider.Message{Kind: cloudprovider.NoInterruption}
	if at, err := time.Parse(time.RFC3339, e.Time); err == nil {
		out.At = at
	}
	read, known := parsers[eventType{e.Source, e.DetailType}]
	if !known || e.Version != "0" {
		return out, nil
	}
	var err error
	if out.Kind, out.InstanceIDs, err = read(e.Detail); err != nil {
		return none, fmt.Errorf("read the details of a %q of %s: %w", e.DetailType, e.Source, err)
	}
	return out, nil
}

// ec2Detail is the detail of EC2's events.
type ec2Detail struct {
	InstanceID string `json:"instance-id"`
	State      string `json:"state"`
}

func (d ec2Detail) ids() []string {
	if d.InstanceID == "" {
		return nil
	}
	return []string{d.InstanceID}
}

// always parses events that have one meaning whatever their details.
func always(kind cloudprovider.InterruptionKind) func(json.RawMessage) (cloudprovider.InterruptionKind, []string, error) {
	return func(detail json.RawMessage) (cloudprovider.InterruptionKind, []string, error) {
		var d ec2Detail
		err := json.Unmarshal(detail, &d)
		return kind, d.ids(), err
	}
}

func stateChange(detail json.RawMessage) (cloudprovider.InterruptionKind, []string, error) {
	var d ec2Detail
	if err := json.Unmarshal(detail, &d); err != nil {
		return "", nil, err
	}
	switch strings.ToLower(d.State) {
	case "stopping", "stopped":
		return cloudprovider.InstanceStopped, d.ids(), nil
	case "shutting-down", "terminated":
		return cloudprovider.InstanceTerminated, d.ids(), nil
	}
	return cloudprovider.NoInterruption, nil, nil
}

// health parses AWS Health events: scheduled changes of instances. A closed event is completed or canceled.
func health(detail json.RawMessage) (cloudprovider.InterruptionKind, []string, error) {
	var d struct {
		Service  string `json:"service"`
		Category string `json:"eventTypeCategory"`
		Status   string `json:"statusCode"`
		Affected []struct {
			Value string `json:"entityValue"`
		} `json:"affectedEntities"`
	}
	if err := json.Unmarshal(detail, &d); err != nil {
		return "", nil, err
	}
	if d.Service != "EC2" || d.Category != "scheduledChange" || d.Status == "closed" {
		return cloudprovider.NoInterruption, nil, nil
	}
	var ids []string
	for _, a := range d.Affected {
		if a.Value != "" {
			ids = append(ids, a.Value)
		}
	}
	return cloudprovider.ScheduledChange, ids, nil
}
