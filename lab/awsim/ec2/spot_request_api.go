package ec2

import (
	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

// spotRequestIDs are IDs of Spot requests: shorter than others, and with letters beyond f at the real EC2.
func spotRequestIDs() idRules {
	return idRules{
		prefix: "sir", malformed: "InvalidSpotInstanceRequestID.Malformed", notFound: "InvalidSpotInstanceRequestID.NotFound",
		missing: does("spot instance request"),
	}
}

type describeSpotRequestsInput struct {
	listInput
	IDs []string `query:"SpotInstanceRequestId"`
}

type describeSpotRequestsOutput struct {
	Requests []spotRequestInfo `xml:"spotInstanceRequestSet>item"`
	Next     *string           `xml:"nextToken"`
}

// spotRequestInfo is a request for a Spot instance, one-time as fleets and RunInstances make them.
type spotRequestInfo struct {
	ID         string        `xml:"spotInstanceRequestId"`
	Type       string        `xml:"type"`
	State      string        `xml:"state"`
	Status     spotStatus    `xml:"status"`
	InstanceID string        `xml:"instanceId"`
	Created    string        `xml:"createTime"`
	Product    string        `xml:"productDescription"`
	Zone       string        `xml:"launchedAvailabilityZone"`
	Behavior   string        `xml:"instanceInterruptionBehavior"`
	MaxPrice   string        `xml:"spotPrice,omitempty"`
	Launch     spotLaunchFor `xml:"launchSpecification"`
	Tags       []tag         `xml:"tagSet>item"`

	tags map[string]string
}

type spotStatus struct {
	Code    string `xml:"code"`
	Message string `xml:"message"`
	Updated string `xml:"updateTime"`
}

type spotLaunchFor struct {
	ImageID  string `xml:"imageId"`
	Type     string `xml:"instanceType"`
	SubnetID string `xml:"subnetId"`
}

// describeSpotInstanceRequests lists the requests of all Spot instances that are not forgotten.
func (e *EC2) describeSpotInstanceRequests(_ *protocol.Request, in *describeSpotRequestsInput) (*describeSpotRequestsOutput, error) {
	now := e.applyDueTransitions()
	n := resourceKind[spotRequestInfo]{
		id: func(s spotRequestInfo) string { return s.ID }, tags: func(s spotRequestInfo) map[string]string { return s.tags },
		ids: spotRequestIDs(), minResults: 5, maxResults: 1000,
		properties: properties[spotRequestInfo]{
			"create-time":                    one(func(s spotRequestInfo) string { return s.Created }),
			"instance-id":                    one(func(s spotRequestInfo) string { return s.InstanceID }),
			"launch.image-id":                one(func(s spotRequestInfo) string { return s.Launch.ImageID }),
			"launch.instance-type":           one(func(s spotRequestInfo) string { return s.Launch.Type }),
			"launched-availability-zone":     one(func(s spotRequestInfo) string { return s.Zone }),
			"network-interface.subnet-id":    one(func(s spotRequestInfo) string { return s.Launch.SubnetID }),
			"product-description":            one(func(s spotRequestInfo) string { return s.Product }),
			"spot-instance-request-id":       one(func(s spotRequestInfo) string { return s.ID }),
			"state":                          one(func(s spotRequestInfo) string { return s.State }),
			"status-code":                    one(func(s spotRequestInfo) string { return s.Status.Code }),
			"type":                           one(func(s spotRequestInfo) string { return s.Type }),
			"instance-interruption-behavior": one(func(s spotRequestInfo) string { return s.Behavior }),
		},
	}
	all := locked(e, func() []spotRequestInfo {
		var out []spotRequestInfo
		for _, r := range e.fleet.list() {
			if r.spotRequest != "" && !now.Before(r.visible) {
				out = append(out, showSpotRequest(r))
			}
		}
		return out
	})
	p, err := n.list(in.listInput, in.IDs, all)
	if err != nil {
		return nil, err
	}
	return &describeSpotRequestsOutput{Requests: p.items, Next: p.next}, nil
}

func showSpotRequest(r *instanceRecord) spotRequestInfo {
	s := spotRequestInfo{
		ID: r.spotRequest, Type: "one-time", InstanceID: r.ID, Created: stamp(r.LaunchedAt), Product: "Linux/UNIX", Zone: r.Zone,
		Behavior: "terminate",
		State:    "active", Status: spotStatus{Code: "fulfilled", Message: "Your spot request is fulfilled.", Updated: stamp(r.LaunchedAt)},
		Launch: spotLaunchFor{
			ImageID:  r.ImageID,
			Type:     r.Type,
			SubnetID: r.SubnetID,
		}, Tags: tagList(r.order.tags.spot), tags: r.order.tags.spot,
	}
	if r.order.image.Platform != "" {
		s.Product = "Windows"
	}
	if m := r.order.data.Market; m != nil && m.Spot != nil {
		s.MaxPrice = m.Spot.MaxPrice
	}
	switch {
	case r.State != ShuttingDown && r.State != Terminated:
	case r.endedBy == spotTermination:
		s.State, s.Status = "closed", spotStatus{
			Code: "instance-terminated-no-capacity", Message: "There is no Spot capacity available that matches your request.",
			Updated: stamp(r.endedAt),
		}
	default:
		s.State, s.Status = "closed", spotStatus{
			Code: "instance-terminated-by-user", Message: "The Spot Instance was terminated because you terminated it.", Updated: stamp(r.endedAt),
		}
	}
	return s
}
