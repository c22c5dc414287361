package interruption

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/cloud"
)

// event is an event of EventBridge with everything around its detail.
func event(source, detailType, detail string) string {
	return `{"version":"0","id":"7bf73129-1428-4cd3-a780-95db273d1602","detail-type":"` + detailType + `","source":"` + source + `",` +
		`"account":"123456789012","time":"2026-03-14T12:00:00Z","region":"us-east-1","resources":["arn:aws:ec2:us-east-1b:instance/i-0b662ef9931388ba0"],"detail":` + detail + `}`
}

func TestParse(t *testing.T) {
	const id = "i-0b662ef9931388ba0"
	health := func(detail string) string { return event("aws.health", "AWS Health Event", detail) }
	state := func(s string) string {
		return event("aws.ec2", "EC2 Instance State-change Notification", `{"instance-id":"`+id+`","state":"`+s+`"}`)
	}
	for _, tt := range []struct {
		name, body string
		kind       cloud.InterruptionKind
		ids        []string
		unreadable bool
	}{
		{"spot interruption", event("aws.ec2", "EC2 Spot Instance Interruption Warning", `{"instance-id":"`+id+`","instance-action":"terminate"}`), cloud.SpotInterrupted, []string{id}, false},
		{"rebalance recommendation", event("aws.ec2", "EC2 Instance Rebalance Recommendation", `{"instance-id":"`+id+`"}`), cloud.RebalanceRecommended, []string{id}, false},
		{"capacity reservation", event("aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning", `{"instance-id":"`+id+`"}`), cloud.ReservationInterrupted, []string{id}, false},
		{"pending", state("pending"), cloud.NoInterruption, nil, false},
		{"running", state("running"), cloud.NoInterruption, nil, false},
		{"stopping", state("stopping"), cloud.InstanceStopped, []string{id}, false},
		{"Stopped", state("Stopped"), cloud.InstanceStopped, []string{id}, false},
		{"shutting-down", state("shutting-down"), cloud.InstanceTerminated, []string{id}, false},
		{"TERMINATED", state("TERMINATED"), cloud.InstanceTerminated, []string{id}, false},
		{"scheduled change", health(`{"service":"EC2","eventTypeCategory":"scheduledChange","statusCode":"upcoming","affectedEntities":[{"entityValue":"i-1"},{"entityValue":""},{"entityValue":"i-2"}]}`), cloud.ScheduledChange, []string{"i-1", "i-2"}, false},
		{"scheduled change of nothing", health(`{"service":"EC2","eventTypeCategory":"scheduledChange"}`), cloud.ScheduledChange, nil, false},
		{"scheduled change that is closed", health(`{"service":"EC2","eventTypeCategory":"scheduledChange","statusCode":"closed","affectedEntities":[{"entityValue":"i-1"}]}`), cloud.NoInterruption, nil, false},
		{"issue", health(`{"service":"EC2","eventTypeCategory":"issue","affectedEntities":[{"entityValue":"i-1"}]}`), cloud.NoInterruption, nil, false},
		{"of another service", health(`{"service":"RDS","eventTypeCategory":"scheduledChange","affectedEntities":[{"entityValue":"db-1"}]}`), cloud.NoInterruption, nil, false},
		{"health from another source", event("my.health", "AWS Health Event", `{}`), cloud.NoInterruption, nil, false},
		{"details of an unknown kind", event("aws.s3", "Object Created", `"whatever"`), cloud.NoInterruption, nil, false},
		{"null", "null", cloud.NoInterruption, nil, false},
		{"empty object", "{}", cloud.NoInterruption, nil, false},
		{"white space", " \n", cloud.NoInterruption, nil, false},
		{"no JSON", "Hello", cloud.NoInterruption, nil, true},
		{"half of it", state("stopping")[:80], cloud.NoInterruption, nil, true},
		{"a list", "[]", cloud.NoInterruption, nil, true},
		{"no details", strings.TrimSuffix(event("aws.ec2", "EC2 Spot Instance Interruption Warning", ""), `,"detail":}`) + "}", cloud.NoInterruption, nil, true},
		{"an instance that is a number", event("aws.ec2", "EC2 Spot Instance Interruption Warning", `{"instance-id":5}`), cloud.NoInterruption, nil, true},
		{"entities that are none", health(`{"service":"EC2","eventTypeCategory":"scheduledChange","affectedEntities":"i-1"}`), cloud.NoInterruption, nil, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Parse(tt.body)
			if (err != nil) != tt.unreadable || got.Kind != tt.kind || !slices.Equal(got.InstanceIDs, tt.ids) {
				t.Errorf("got %s of %v (%v), want %s of %v", got.Kind, got.InstanceIDs, err, tt.kind, tt.ids)
			}
			if got.Kind != cloud.NoInterruption && !got.At.Equal(time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)) {
				t.Errorf("it happened at %v", got.At)
			}
		})
	}
}

// Whatever is in the queue, reading it ends well, and what cannot be read asks for nothing.
func FuzzParse(f *testing.F) {
	f.Add(event("aws.ec2", "EC2 Spot Instance Interruption Warning", `{"instance-id":"i-1"}`))
	f.Add(event("aws.health", "AWS Health Event", `{"service":"EC2","eventTypeCategory":"scheduledChange","affectedEntities":[{"entityValue":"i-1"}]}`))
	f.Add("}{")
	f.Fuzz(func(t *testing.T, body string) {
		got, err := Parse(body)
		if got.Kind == "" || (err != nil || got.Kind == cloud.NoInterruption) && len(got.InstanceIDs) > 0 || slices.Contains(got.InstanceIDs, "") {
			t.Errorf("%+v, %v", got, err)
		}
	})
}
