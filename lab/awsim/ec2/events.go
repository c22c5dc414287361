package ec2

import (
	"fmt"
	"strings"
	"time"
)

// SpotNotice is how long before it takes back an instance EC2 warns of it.
const SpotNotice = 2 * time.Minute

// spotTermination is the state reason of an instance that was taken back.
const spotTermination = "Server.SpotInstanceTermination"

// Event is an event about instances that AWS puts on the account's event bus.
type Event struct {
	Source     string // aws.ec2
	DetailType string
	At         time.Time
	Resources  []string // instance IDs
	Detail     map[string]any
}

// OnEvent calls f with every event from now on. The lock is held: f must not call back.
func (e *EC2) OnEvent(f func(Event)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.fleet.publish = f
}

// publish sends an event. The lock must be held.
func (e *EC2) publish(n Event) {
	if e.fleet.publish != nil {
		e.fleet.publish(n)
	}
}

func stateChanged(r *instanceRecord, at time.Time) Event {
	return Event{
		Source: "aws.ec2", DetailType: "EC2 Instance State-change Notification", At: at, Resources: []string{r.ID},
		Detail: map[string]any{"instance-id": r.ID, "state": r.State},
	}
}

// Reclaim warns that a running spot instance is taken back, and does so after the time SpotNotice.
func (e *EC2) Reclaim(id string) error {
	return e.warn(id, func(r *instanceRecord, now time.Time) (Event, error) {
		if r.Lifecycle != spotLifecycle || r.State != Running {
			return Event{}, fmt.Errorf("reclaim %s: it is %s and no running spot instance", id, r.State)
		}
		e.scheduleTransition(transition{at: now.Add(SpotNotice), id: id, from: Running, to: ShuttingDown})
		e.setTimer()
		return Event{
			Source: "aws.ec2", DetailType: "EC2 Spot Instance Interruption Warning",
			Detail: map[string]any{"instance-id": id, "instance-action": "terminate"},
		}, nil
	})
}

// RecommendRebalance publishes a rebalance recommendation for a running spot instance.
func (e *EC2) RecommendRebalance(id string) error {
	return e.warn(id, func(*instanceRecord, time.Time) (Event, error) {
		return Event{Source: "aws.ec2", DetailType: "EC2 Instance Rebalance Recommendation", Detail: map[string]any{"instance-id": id}}, nil
	})
}

// ReclaimReservation warns that the owner of an instance's capacity reservation takes it back, and stops the instance
// after the time SpotNotice. An interruptible reservation holds one instance less from then on.
func (e *EC2) ReclaimReservation(id string) error {
	return e.warn(id, func(r *instanceRecord, now time.Time) (Event, error) {
		if r.CapacityReservationID == "" || r.State != Running {
			return Event{}, fmt.Errorf("reclaim the reservation of %s: it is %s and runs in none", id, r.State)
		}
		if of := e.reservation(r.CapacityReservationID); of != nil && of.Interruptible {
			of.Total-- // its owner has the place from now on
		}
		e.scheduleTransition(transition{at: now.Add(SpotNotice), id: id, from: Running, to: ShuttingDown})
		e.setTimer()
		return Event{
			Source: "aws.ec2", DetailType: "EC2 Capacity Reservation Instance Interruption Warning",
			Detail: map[string]any{
				"instance-id": id, "instance-action": "terminate", "instance-termination-time": now.Add(SpotNotice).UTC().Format(time.RFC3339),
				"azId": r.ZoneID,
			},
		}, nil
	})
}

// PlanEvent has EC2 list an event of a code, instance-retirement for example, for instances, and AWS Health report of it
// once for all of them.
func (e *EC2) PlanEvent(code string, at time.Time, ids ...string) error {
	const description = "The instance is running on degraded hardware"
	now := e.cfg.Clock.Now()
	var affected []map[string]any
	for _, id := range ids {
		affected = append(affected, map[string]any{"entityValue": id, "lastUpdatedTime": now.UTC().Format(time.RFC1123), "status": "PENDING"})
		text := stamp(at)
		planned := scheduledEvent{ID: derivedID("instance-event", id+code), Code: code, Description: description, NotBefore: &text}
		if err := e.edit(id, func(r *instanceRecord) { r.planned = append(r.planned[:len(r.planned):len(r.planned)], planned) }); err != nil {
			return err
		}
	}
	kind := "AWS_EC2_" + strings.ToUpper(strings.ReplaceAll(code, "-", "_")) + "_SCHEDULED"
	communication := derivedID(code, strings.Join(ids, " "))
	e.mu.Lock()
	defer e.mu.Unlock()
	e.publish(Event{
		Source: "aws.health", DetailType: "AWS Health Event", At: now, Resources: ids,
		Detail: map[string]any{
			"eventArn": "arn:aws:health:" + e.cfg.Region + "::event/EC2/" + kind + "/" + kind + "_" + communication,
			"service":  "EC2", "eventTypeCode": kind, "eventTypeCategory": "scheduledChange", "eventScopeCode": "ACCOUNT_SPECIFIC",
			"communicationId": communication, "startTime": at.UTC().Format(time.RFC1123), "lastUpdatedTime": now.UTC().Format(time.RFC1123),
			"statusCode": "upcoming", "eventRegion": e.cfg.Region, "affectedAccount": e.cfg.AccountID, "page": "1", "totalPages": "1",
			"eventDescription": []map[string]string{{"language": "en_US", "latestDescription": description}}, "affectedEntities": affected,
		},
	})
	return nil
}

// EndEvents marks the events of an instance as completed; EC2 lists them on.
func (e *EC2) EndEvents(id string) error {
	return e.edit(id, func(r *instanceRecord) {
		var done []scheduledEvent
		for _, p := range r.planned {
			p.Description = "[Completed] " + p.Description
			done = append(done, p)
		}
		r.planned = done
	})
}

// Impair has a check of an instance fail since a time; the zero time stops that.
func (e *EC2) Impair(id string, c Check, since time.Time) error {
	return e.edit(id, func(r *instanceRecord) { r.failing[c] = since })
}

// edit replaces the record of an instance.
func (e *EC2) edit(id string, change func(*instanceRecord)) error {
	e.applyDueTransitions()
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.fleet.get(id)
	if r == nil {
		return fmt.Errorf("no instance %s", id)
	}
	e.fleet.put(r, change)
	return nil
}

// warn sends what make returns about an instance.
func (e *EC2) warn(id string, about func(r *instanceRecord, now time.Time) (Event, error)) error {
	now := e.applyDueTransitions()
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.fleet.get(id)
	if r == nil {
		return fmt.Errorf("no instance %s", id)
	}
	n, err := about(r, now)
	if err != nil {
		return err
	}
	n.At, n.Resources = now, []string{id}
	e.publish(n)
	return nil
}
