package ec2

import (
	"github.com/dovetail-k8s/dovetail/lab/awsim/policy"
	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

// ForgetSpotRole makes the account one that has never used spot instances: the first launch of one has to make the
// service-linked role of EC2 Spot, which takes a right of its own.
func (e *EC2) ForgetSpotRole() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.noSpotRole = true
}

// spotRole sees to it that the service-linked role of EC2 Spot is there; a dry run makes nothing. The lock must be
// held.
func (e *EC2) spotRole(r *protocol.Request, o *launchPlan, dry bool) error {
	if o.lifecycle != spotLifecycle || !e.noSpotRole {
		return nil
	}
	const service = "spot.amazonaws.com"
	keys := policy.Keys{}
	keys.Put("iam:AWSServiceName", service)
	err := r.Authorize(protocol.RequiredPermission{
		Action: "iam:CreateServiceLinkedRole", Keys: keys,
		Resource: "arn:aws:iam::" + e.cfg.AccountID + ":role/aws-service-role/" + service + "/AWSServiceRoleForEC2Spot",
	})
	if err != nil {
		return protocol.Errorf("AuthFailure.ServiceLinkedRoleCreationNotPermitted",
			"The provided credentials do not have permission to create the service-linked role for EC2 Spot Instances.").WithStatus(403)
	}
	e.noSpotRole = dry
	return nil
}
