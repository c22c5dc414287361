package ec2

import (
	"time"

	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

type terminateInput struct {
	DryRun         bool     `query:"DryRun"`
	IDs            []string `query:"InstanceId,required"`
	Force          bool     `query:"Force"`
	SkipOSShutdown bool     `query:"SkipOsShutdown"`
}

type changesOutput struct {
	Changes []stateChange `xml:"instancesSet>item"`
}

type stateChange struct {
	ID       string    `xml:"instanceId"`
	Current  stateInfo `xml:"currentState"`
	Previous stateInfo `xml:"previousState"`
}

// userShutdown is the state reason of an instance that a call finished.
const userShutdown = "Client.UserInitiatedShutdown"

func (e *EC2) terminateInstances(r *protocol.Request, in *terminateInput) (*changesOutput, error) {
	check := func(i *instanceRecord) error {
		if no := i.order.data.NoTermination; no != nil && *no && i.State != Terminated {
			return protocol.Errorf("OperationNotPermitted",
				"The instance '%s' may not be terminated. Modify its 'disableApiTermination' instance attribute and try again.", i.ID)
		}
		return nil
	}
	return e.change(r, stateChanges{in.DryRun, in.IDs, check}, func(i *instanceRecord, now time.Time) *instanceRecord {
		if i.State == ShuttingDown || i.State == Terminated {
			return i
		}
		return e.end(i, ShuttingDown, now)
	})
}

type stopInput struct {
	DryRun         bool         `query:"DryRun"`
	IDs            []string     `query:"InstanceId,required"`
	Force          bool         `query:"Force"`
	SkipOSShutdown bool         `query:"SkipOsShutdown"`
	Hibernate      *unsupported `query:"Hibernate,unsupported"`
}

func (e *EC2) stopInstances(r *protocol.Request, in *stopInput) (*changesOutput, error) {
	check := func(i *instanceRecord) error {
		switch {
		case i.Lifecycle == spotLifecycle:
			return protocol.Errorf(
				"UnsupportedOperation",
				"You can't stop the Spot Instance '%s' because it is associated with a one-time Spot Instance request. "+
					"You can only stop Spot Instances associated with persistent Spot Instance requests.",
				i.ID,
			)
		case i.State == ShuttingDown || i.State == Terminated || i.State == Pending:
			return protocol.Errorf("IncorrectInstanceState", "This instance '%s' is not in a state from which it can be stopped.", i.ID)
		}
		return nil
	}
	return e.change(r, stateChanges{in.DryRun, in.IDs, check}, func(i *instanceRecord, now time.Time) *instanceRecord {
		if i.State != Running {
			return i
		}
		return e.end(i, Stopping, now)
	})
}

type startInput struct {
	DryRun bool         `query:"DryRun"`
	IDs    []string     `query:"InstanceId,required"`
	Info   *unsupported `query:"AdditionalInfo,unsupported"`
}

func (e *EC2) startInstances(r *protocol.Request, in *startInput) (*changesOutput, error) {
	check := func(i *instanceRecord) error {
		if i.State != Stopped && i.State != Running && i.State != Pending {
			return protocol.Errorf("IncorrectInstanceState", "The instance '%s' is not in a state from which it can be started.", i.ID)
		}
		return nil
	}
	return e.change(r, stateChanges{in.DryRun, in.IDs, check}, func(i *instanceRecord, now time.Time) *instanceRecord {
		if i.State != Stopped {
			return i
		}
		i = e.fleet.put(i, func(i *instanceRecord) { i.endedBy, i.endedAt, i.LaunchedAt = "", time.Time{}, now })
		return e.enterState(i, Pending, now)
	})
}

type rebootInput struct {
	DryRun bool     `query:"DryRun"`
	IDs    []string `query:"InstanceId,required"`
}

// rebootInstances has no effect that the API would show. The system on the instance boots anew.
func (e *EC2) rebootInstances(r *protocol.Request, in *rebootInput) (*struct{}, error) {
	check := func(i *instanceRecord) error {
		if i.State != Running && i.State != Pending {
			return protocol.Errorf("IncorrectState", "The instance %s is not in a state from which it can be rebooted.", i.ID)
		}
		return nil
	}
	_, err := e.change(r, stateChanges{in.DryRun, in.IDs, check}, func(i *instanceRecord, _ time.Time) *instanceRecord {
		if i.State != Running {
			return i // it has not booted yet
		}
		i = e.fleet.put(i, func(i *instanceRecord) { i.Reboots++ })
		e.fleet.notify(i)
		return i
	})
	return nil, err
}

// end begins to stop or terminate an instance. The lock must be held.
func (e *EC2) end(i *instanceRecord, state string, now time.Time) *instanceRecord {
	i = e.fleet.put(i, func(i *instanceRecord) { i.endedBy, i.endedAt = userShutdown, now })
	if state == ShuttingDown && i.State == Stopped {
		// There is nothing to shut down any more.
		return e.enterState(i, Terminated, now)
	}
	return e.enterState(i, state, now)
}

// stateChanges is a request that changes the state of instances.
type stateChanges struct {
	dryRun bool
	ids    []string
	check  func(*instanceRecord) error // whether an instance allows the change
}

// change applies a change to all of the instances, or to none if one is unknown or does not allow it.
func (e *EC2) change(
	r *protocol.Request,
	in stateChanges,
	apply func(*instanceRecord, time.Time) *instanceRecord,
) (*changesOutput, error) {
	for _, id := range in.ids {
		if err := instanceIDs().check(id); err != nil {
			return nil, err
		}
	}
	now := e.applyDueTransitions()
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.changeable(r, in.ids, now, in.check); err != nil {
		return nil, err
	}
	if in.dryRun {
		return nil, dryRun()
	}
	out := &changesOutput{}
	seen := map[string]bool{}
	for _, id := range in.ids {
		if seen[id] {
			continue
		}
		seen[id] = true
		before := e.fleet.get(id)
		after := apply(before, now)
		out.Changes = append(out.Changes, stateChange{ID: id, Current: stateOf(after.State), Previous: stateOf(before.State)})
	}
	e.setTimer()
	r.Touch(in.ids...)
	return out, nil
}

// changeable checks the permission to change each of the instances, and then whether each can change. Those that do not
// exist, or are too new to be visible, are errors before that.
func (e *EC2) changeable(r *protocol.Request, ids []string, now time.Time, check func(*instanceRecord) error) error {
	var absent []string
	for _, id := range ids {
		if e.fleet.known(id, now) == nil {
			absent = append(absent, id)
		}
	}
	if len(absent) > 0 {
		return instanceIDs().absent(absent...)
	}
	for _, id := range ids {
		if err := r.Authorize(e.onInstance(e.fleet.get(id))); err != nil {
			return err
		}
	}
	for _, id := range ids {
		if err := check(e.fleet.get(id)); err != nil {
			return err
		}
	}
	return nil
}
