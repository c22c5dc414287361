package awsim_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/awsim/awsimtest"
)

// event is what EventBridge sends to a queue.
type event struct {
	Version, ID, Source, Account, Time, Region string
	DetailType                                 string `json:"detail-type"`
	Resources                                  []string
	Detail                                     map[string]any
}

// receive takes all events that are in a queue.
func receive(t *testing.T, c *sqs.Client, queue *string) (events []event) {
	t.Helper()
	for {
		out := awsimtest.OK(c.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: queue, MaxNumberOfMessages: 10}))(t)
		if len(out.Messages) == 0 {
			return events
		}
		for _, m := range out.Messages {
			var e event
			if err := json.Unmarshal([]byte(*m.Body), &e); err != nil {
				t.Fatal(err)
			}
			events = append(events, e)
			awsimtest.OK(c.DeleteMessage(t.Context(), &sqs.DeleteMessageInput{QueueUrl: queue, ReceiptHandle: m.ReceiptHandle}))(t)
		}
	}
}

// TestEvents: what happens to instances is informed in the form that AWS documents.
func TestEvents(t *testing.T) {
	w := awsimtest.Start(t)
	if err := w.Sim.SeedCluster(awsim.ClusterSpec{Name: "c1", Version: "1.36", Endpoint: "https://127.0.0.1:1"}); err != nil {
		t.Fatal(err)
	}
	if err := w.Sim.SendEventsTo("events"); err != nil {
		t.Fatal(err)
	}
	queues, machines := sqs.NewFromConfig(w.Config), ec2.NewFromConfig(w.Config)
	queue := awsimtest.OK(queues.GetQueueUrl(t.Context(), &sqs.GetQueueUrlInput{QueueName: aws.String("events")}))(t).QueueUrl
	subnet := awsimtest.OK(machines.DescribeSubnets(t.Context(), &ec2.DescribeSubnetsInput{
		Filters: []types.Filter{{Name: aws.String("availability-zone"), Values: []string{"us-east-1a"}}},
	}))(t).Subnets[0].SubnetId
	image := awsimtest.OK(machines.DescribeImages(t.Context(), &ec2.DescribeImagesInput{
		Filters: []types.Filter{{Name: aws.String("name"), Values: []string{"amazon-eks-node-al2023-x86_64-standard-1.36-*"}}},
	}))(t).Images[0].ImageId
	reservation := awsimtest.OK(w.Sim.AddCapacityReservation(awsim.CapacityReservation{
		InstanceType: "m5.large", Zone: "us-east-1a", Total: 1, Interruptible: true,
	}))(t)
	launch := func(edit func(*ec2.RunInstancesInput)) string {
		in := &ec2.RunInstancesInput{
			MinCount:     aws.Int32(1),
			MaxCount:     aws.Int32(1),
			InstanceType: "m5.large",
			ImageId:      image,
			SubnetId:     subnet,
		}
		edit(in)
		return *awsimtest.OK(machines.RunInstances(t.Context(), in))(t).Instances[0].InstanceId
	}
	spot := launch(func(in *ec2.RunInstancesInput) {
		in.InstanceMarketOptions = &types.InstanceMarketOptionsRequest{MarketType: types.MarketTypeSpot}
	})
	borrowed := launch(func(in *ec2.RunInstancesInput) {
		in.InstanceMarketOptions = &types.InstanceMarketOptionsRequest{MarketType: types.MarketTypeInterruptibleCapacityReservation}
		in.CapacityReservationSpecification = &types.CapacityReservationSpecification{
			CapacityReservationPreference: types.CapacityReservationPreferenceCapacityReservationsOnly,
			CapacityReservationTarget:     &types.CapacityReservationTarget{CapacityReservationId: &reservation},
		}
	})
	w.Clock.Advance(time.Minute)
	seen := map[string]bool{}
	for _, e := range receive(t, queues, queue) {
		seen[e.ID] = true
	}
	if len(seen) != 4 {
		t.Errorf("%d IDs of events, want one for each of two states of two instances", len(seen))
	}

	sim, now := w.Sim.EC2(), w.Clock.Now()
	at := now.UTC().Format(time.RFC3339)
	for _, row := range []struct {
		name, source, kind string
		do                 func() error
		id                 string
		detail             map[string]any
	}{
		{
			"spot", "aws.ec2", "EC2 Spot Instance Interruption Warning", func() error { return sim.Reclaim(spot) }, spot,
			map[string]any{"instance-id": spot, "instance-action": "terminate"},
		},
		{
			"rebalance", "aws.ec2", "EC2 Instance Rebalance Recommendation", func() error { return sim.RecommendRebalance(spot) }, spot,
			map[string]any{"instance-id": spot},
		},
		{
			"reservation", "aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning",
			func() error { return sim.ReclaimReservation(borrowed) }, borrowed,
			map[string]any{
				"instance-id": borrowed, "instance-action": "terminate", "azId": "use1-az1",
				"instance-termination-time": now.Add(2 * time.Minute).UTC().Format(time.RFC3339),
			},
		},
		{
			"health", "aws.health", "AWS Health Event", func() error { return sim.PlanEvent("instance-retirement", now.Add(time.Hour), spot) }, spot,
			map[string]any{
				"service": "EC2", "eventTypeCategory": "scheduledChange", "eventTypeCode": "AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED",
				"eventScopeCode": "ACCOUNT_SPECIFIC", "eventRegion": "us-east-1", "affectedAccount": "111122223333",
			},
		},
		{
			"state", "aws.ec2", "EC2 Instance State-change Notification", func() error {
				_, err := machines.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: []string{spot}})
				return err
			}, spot,
			map[string]any{"instance-id": spot, "state": "shutting-down"},
		},
	} {
		if err := row.do(); err != nil {
			t.Fatalf("%s: %v", row.name, err)
		}
		got := receive(t, queues, queue)
		if len(got) != 1 {
			t.Errorf("%s: %d events", row.name, len(got))
			continue
		}
		e, resource := got[0], row.id
		if row.source == "aws.ec2" {
			resource = "arn:aws:ec2:us-east-1:111122223333:instance/" + row.id
		}
		if e.Version != "0" || e.Source != row.source || e.DetailType != row.kind || e.Account != "111122223333" || e.Region != "us-east-1" ||
			e.Time != at || !slices.Equal(e.Resources, []string{resource}) || seen[e.ID] || len(e.ID) != 36 {
			t.Errorf("%s: %+v", row.name, e)
		}
		seen[e.ID] = true
		for key, want := range row.detail {
			if e.Detail[key] != want {
				t.Errorf("%s: %s is %v, want %v", row.name, key, e.Detail[key], want)
			}
		}
	}
}

// Every cluster's queue gets every event: EventBridge knows no clusters.
func TestEventsReachEveryQueue(t *testing.T) {
	w := awsimtest.Start(t)
	for _, cluster := range []string{"c1", "c2", "c1"} { // a second request changes nothing
		if err := w.Sim.SeedCluster(awsim.ClusterSpec{Name: cluster, Version: "1.36", Endpoint: "https://127.0.0.1:1"}); err != nil {
			t.Fatal(err)
		}
		if err := w.Sim.SendEventsTo(cluster); err != nil {
			t.Fatal(err)
		}
	}
	queues, instances := sqs.NewFromConfig(w.Config), ec2.NewFromConfig(w.Config)
	subnet := awsimtest.OK(instances.DescribeSubnets(t.Context(), nil))(t).Subnets[0].SubnetId
	image := awsimtest.OK(instances.DescribeImages(t.Context(), &ec2.DescribeImagesInput{
		Filters: []types.Filter{{Name: aws.String("name"), Values: []string{"amazon-eks-node-al2023-x86_64-standard-1.36-*"}}},
	}))(t).Images[0].ImageId
	awsimtest.OK(instances.RunInstances(t.Context(), &ec2.RunInstancesInput{
		MinCount: aws.Int32(1), MaxCount: aws.Int32(1), InstanceType: "m5.large", ImageId: image, SubnetId: subnet,
	}))(t)
	w.Clock.Advance(time.Minute)
	for _, cluster := range []string{"c1", "c2"} {
		queue := awsimtest.OK(queues.GetQueueUrl(t.Context(), &sqs.GetQueueUrlInput{QueueName: aws.String(cluster)}))(t).QueueUrl
		if events := receive(t, queues, queue); len(events) != 2 {
			t.Errorf("the queue of %s got %d events, want pending and running", cluster, len(events))
		}
	}
}
