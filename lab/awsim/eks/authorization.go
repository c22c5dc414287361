package eks

import (
	"encoding/json"
	"strings"

	"github.com/dovetail-k8s/dovetail/lab/awsim/policy"
	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

// requiredPermissions are what a caller must be allowed to do for a call of EKS: on the cluster, or on the access entry
// that it names.
func (e *EKS) requiredPermissions(r *protocol.Request) []protocol.RequiredPermission {
	name, principal := r.Path["name"], r.Path["principalArn"]
	switch {
	case name == "":
		return []protocol.RequiredPermission{{}}
	case r.Path["associationId"] != "":
		return []protocol.RequiredPermission{{Resource: e.associationARN(name, r.Path["associationId"])}}
	case principal == "":
		need := protocol.RequiredPermission{Resource: e.arn("cluster/" + name), Keys: policy.Keys{}}
		var body struct{ PrincipalARN string }
		if r.Action == "CreateAccessEntry" && json.Unmarshal(r.Body, &body) == nil {
			need.Keys.Put("eks:principalArn", body.PrincipalARN)
		}
		return []protocol.RequiredPermission{need}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if c, ok := e.clusters[name]; ok {
		if entry, ok := c.entries[principal]; ok {
			return []protocol.RequiredPermission{{Resource: entry.ARN}}
		}
	}
	// arn:aws:iam::ACCOUNT:role/PATH/NAME, of which an access entry's ARN has kind, account and name.
	kind, rest, _ := strings.Cut(principal[strings.LastIndexByte(principal, ':')+1:], "/")
	return []protocol.RequiredPermission{
		{
			Resource: e.arn(
				"access-entry/" + name + "/" + kind + "/" + e.cfg.AccountID + "/" + rest[strings.LastIndexByte(rest, '/')+1:] + "/*",
			),
		},
	}
}

func (e *EKS) arn(resource string) string {
	return "arn:aws:eks:" + e.cfg.Region + ":" + e.cfg.AccountID + ":" + resource
}
