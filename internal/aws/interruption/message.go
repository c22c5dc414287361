// Package interruption reads what AWS says of instances that are going to be interrupted: the events that EventBridge puts
// into an SQS queue, and the status of instances.
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

// route is what tells events apart.
type eventType struct{ source, detailType string }

// readers know the details of the events that we act on. Any other event is none of our business.
var parsers = map[eventType]func(detail json.RawMessage) (cloudprovider.InterruptionKind, []string, error){
	{"aws.ec2", "EC2 Spot Instance Interruption Warning"}:                 always(cloudprovider.SpotInterrupted),
	{"aws.ec2", "EC2 Instance Rebalance Recommendation"}:                  always(cloudprovider.RebalanceRecommended),
	{"aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning"}: always(cloudprovider.ReservationInterrupted),
	{"aws.ec2", "EC2 Instance State-change Notification"}:                 stateChange,
	{"aws.health", "AWS Health Event"}:                                    health,
}

// Parse reads the body of a message. Empty bodies and events of other kinds are NoInterruption; an error means that the body
// is no event, or one of a kind that we know with details that we do not.
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

// always reads events that mean the same whatever their details.
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

// health reads events of AWS Health: changes that are scheduled for instances. One that is closed is over, or was called off.
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
