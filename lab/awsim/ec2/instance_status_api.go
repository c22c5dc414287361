package ec2

import (
	"slices"
	"time"

	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

type describeStatusInput struct {
	listInput
	IDs            []string `query:"InstanceId"`
	All            bool     `query:"IncludeAllInstances"`
	IncludeManaged bool     `query:"IncludeManagedResources"`
}

type describeStatusOutput struct {
	Statuses []statusInfo `xml:"instanceStatusSet>item"`
	Next     *string      `xml:"nextToken"`
}

type statusInfo struct {
	ID       string     `xml:"instanceId"`
	Zone     string     `xml:"availabilityZone"`
	ZoneID   string     `xml:"availabilityZoneId"`
	State    stateInfo  `xml:"instanceState"`
	System   statusSum  `xml:"systemStatus"`
	Instance statusSum  `xml:"instanceStatus"`
	EBS      *statusSum `xml:"attachedEbsStatus"`

	Events []scheduledEvent `xml:"eventsSet>item"`
}

type statusSum struct {
	Status  string         `xml:"status"`
	Details []statusDetail `xml:"details>item"`
}

type statusDetail struct {
	Name   string  `xml:"name"`
	Status string  `xml:"status"`
	Since  *string `xml:"impairedSince"`
}

type scheduledEvent struct {
	ID          string  `xml:"instanceEventId"`
	Code        string  `xml:"code"`
	Description string  `xml:"description"`
	NotBefore   *string `xml:"notBefore"`
}

// settling is how long after running the status checks of an instance are still initializing.
const settling = 5 * time.Second

func (e *EC2) describeInstanceStatus(_ *protocol.Request, in *describeStatusInput) (*describeStatusOutput, error) {
	now := e.applyDueTransitions()
	status := func(c Check) func(*instanceRecord) string {
		return func(r *instanceRecord) string {
			switch {
			case r.State != Running:
				return "not-applicable"
			case !r.failing[c].IsZero():
				return "impaired"
			case now.Before(r.StateChangedAt.Add(settling)):
				return "initializing"
			}
			return "ok"
		}
	}
	reachability := func(c Check) func(*instanceRecord) []string {
		return one(func(r *instanceRecord) string { return reachable(status(c)(r)) })
	}
	n := e.cfg.instanceNoun()
	all := e.visible()
	n.properties = properties[*instanceRecord]{
		"availability-zone":            n.properties["availability-zone"],
		"availability-zone-id":         n.properties["availability-zone-id"],
		"instance-state-code":          n.properties["instance-state-code"],
		"instance-state-name":          n.properties["instance-state-name"],
		"instance-status.status":       one(status(InstanceCheck)),
		"instance-status.reachability": reachability(InstanceCheck),
		"system-status.status":         one(status(SystemCheck)),
		"system-status.reachability":   reachability(SystemCheck),
		"attached-ebs-status.status":   one(status(EBSCheck)),
		"event.code":                   eventsOf(func(e scheduledEvent) string { return e.Code }),
		"event.description":            eventsOf(func(e scheduledEvent) string { return e.Description }),
		"event.not-before":             eventsOf(func(e scheduledEvent) string { return *e.NotBefore }),
		"event.instance-event-id":      eventsOf(func(e scheduledEvent) string { return e.ID }),
	}
	if !in.All {
		all = slices.DeleteFunc(all, func(r *instanceRecord) bool { return r.State != Running && !slices.Contains(in.IDs, r.ID) })
	}
	p, err := n.list(in.listInput, in.IDs, all)
	if err != nil {
		return nil, err
	}
	out := &describeStatusOutput{Next: p.next}
	for _, r := range p.items {
		if !in.All && r.State != Running {
			continue // named by ID, exists, and is not shown
		}
		ebs := r.sum(EBSCheck, status(EBSCheck)(r))
		out.Statuses = append(out.Statuses, statusInfo{
			ID: r.ID, Zone: r.Zone, ZoneID: r.ZoneID, State: stateOf(r.State), Events: r.planned, EBS: &ebs,
			System: r.sum(SystemCheck, status(SystemCheck)(r)), Instance: r.sum(InstanceCheck, status(InstanceCheck)(r)),
		})
	}
	return out, nil
}

// reachable is the detail "reachability" of a check.
func reachable(status string) string {
	switch status {
	case "ok":
		return "passed"
	case "impaired":
		return "failed"
	}
	return status
}

func (r *instanceRecord) sum(c Check, status string) statusSum {
	out := statusSum{Status: status}
	if status == "not-applicable" {
		return out
	}
	detail := statusDetail{Name: "reachability", Status: reachable(status)}
	if since := r.failing[c]; !since.IsZero() {
		text := stamp(since)
		detail.Since = &text
	}
	out.Details = []statusDetail{detail}
	return out
}

func eventsOf(get func(scheduledEvent) string) func(*instanceRecord) []string {
	return func(r *instanceRecord) (values []string) {
		for _, e := range r.planned {
			values = append(values, get(e))
		}
		return values
	}
}

// Check is one of the checks that EC2 makes of an instance.
type Check int

// The checks: of the instance, of what is below it, and of its volumes.
const (
	InstanceCheck Check = iota
	SystemCheck
	EBSCheck
	checks
)
