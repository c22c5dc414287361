package interruption

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
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
		kind       cloudprovider.InterruptionKind
		ids        []string
		unreadable bool
	}{
		{"spot interruption", event("aws.ec2", "EC2 Spot Instance Interruption Warning",
			`{"instance-id":"`+id+`","instance-action":"terminate"}`), cloudprovider.SpotInterrupted, []string{id}, false},
		{
			"rebalance recommendation", event("aws.ec2", "EC2 Instance Rebalance Recommendation", `{"instance-id":"`+id+`"}`),
			cloudprovider.RebalanceRecommended,
			[]string{id},
			false,
		},
		{
			"capacity reservation", event("aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning", `{"instance-id":"`+id+`"}`),
			cloudprovider.ReservationInterrupted,
			[]string{id},
			false,
		},
		{"pending", state("pending"), cloudprovider.NoInterruption, nil, false},
		{"running", state("running"), cloudprovider.NoInterruption, nil, false},
		{"stopping", state("stopping"), cloudprovider.InstanceStopped, []string{id}, false},
		{"Stopped", state("Stopped"), cloudprovider.InstanceStopped, []string{id}, false},
		{"shutting-down", state("shutting-down"), cloudprovider.InstanceTerminated, []string{id}, false},
		{"TERMINATED", state("TERMINATED"), cloudprovider.InstanceTerminated, []string{id}, false},
		{
			"scheduled change",
			health(`{"service":"EC2","eventTypeCategory":"scheduledChange","statusCode":"upcoming","affectedEntities":[{"entityValue":"i-1"},{"entityValue":""},{"entityValue":"i-2"}]}`), cloudprovider.ScheduledChange,
			[]string{"i-1", "i-2"},
			false,
		},
		{
			"scheduled change of nothing", health(`{"service":"EC2","eventTypeCategory":"scheduledChange"}`), cloudprovider.ScheduledChange, nil,
			false,
		},
		{
			"scheduled change that is closed",
			health(`{"service":"EC2","eventTypeCategory":"scheduledChange","statusCode":"closed","affectedEntities":[{"entityValue":"i-1"}]}`),
			cloudprovider.NoInterruption, nil, false,
		},
		{
			"issue", health(`{"service":"EC2","eventTypeCategory":"issue","affectedEntities":[{"entityValue":"i-1"}]}`),
			cloudprovider.NoInterruption, nil, false,
		},
		{
			"of another service", health(`{"service":"RDS","eventTypeCategory":"scheduledChange","affectedEntities":[{"entityValue":"db-1"}]}`),
			cloudprovider.NoInterruption, nil, false,
		},
		{"health from another source", event("my.health", "AWS Health Event", `{}`), cloudprovider.NoInterruption, nil, false},
		{"details of an unknown kind", event("aws.s3", "Object Created", `"whatever"`), cloudprovider.NoInterruption, nil, false},
		{"null", "null", cloudprovider.NoInterruption, nil, false},
		{"empty object", "{}", cloudprovider.NoInterruption, nil, false},
		{"white space", " \n", cloudprovider.NoInterruption, nil, false},
		{"no JSON", "Hello", cloudprovider.NoInterruption, nil, true},
		{"half of it", state("stopping")[:80], cloudprovider.NoInterruption, nil, true},
		{"a list", "[]", cloudprovider.NoInterruption, nil, true},
		{
			"no details", strings.TrimSuffix(event("aws.ec2", "EC2 Spot Instance Interruption Warning", ""), `,"detail":}`) + "}",
			cloudprovider.NoInterruption, nil, true,
		},
		{
			"an instance that is a number", event("aws.ec2", "EC2 Spot Instance Interruption Warning", `{"instance-id":5}`),
			cloudprovider.NoInterruption, nil, true,
		},
		{
			"entities that are none", health(`{"service":"EC2","eventTypeCategory":"scheduledChange","affectedEntities":"i-1"}`),
			cloudprovider.NoInterruption, nil, true,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Parse(tt.body)
			if (err != nil) != tt.unreadable || got.Kind != tt.kind || !slices.Equal(got.InstanceIDs, tt.ids) {
				t.Errorf("got %s of %v (%v), want %s of %v", got.Kind, got.InstanceIDs, err, tt.kind, tt.ids)
			}
			if got.Kind != cloudprovider.NoInterruption && !got.At.Equal(time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)) {
				t.Errorf("it happened at %v", got.At)
			}
		})
	}
}

// Whatever the queue contains, parsing does not panic, and an unreadable message interrupts nothing.
func FuzzParse(f *testing.F) {
	f.Add(event("aws.ec2", "EC2 Spot Instance Interruption Warning", `{"instance-id":"i-1"}`))
	f.Add(
		event(
			"aws.health",
			"AWS Health Event",
			`{"service":"EC2","eventTypeCategory":"scheduledChange","affectedEntities":[{"entityValue":"i-1"}]}`,
		),
	)
	f.Add("}{")
	f.Fuzz(func(t *testing.T, body string) {
		got, err := Parse(body)
		if got.Kind == "" || (err != nil || got.Kind == cloudprovider.NoInterruption) && len(got.InstanceIDs) > 0 ||
			slices.Contains(got.InstanceIDs, "") {
			t.Errorf("%+v, %v", got, err)
		}
	})
}
