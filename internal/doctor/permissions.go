package doctor

import (
	"fmt"

	"github.com/dovetail-k8s/dovetail/internal/aws/policy"
)

// missingPermissions reports each statement of the controller's policy once, with all missing actions in it.
func missingPermissions(f *Facts) (out []Finding) {
	document, err := policy.New(policy.Params{Cluster: f.ClusterName})
	if err != nil {
		return nil // the cluster's name is invalid, which another check reports
	}
	for _, s := range document {
		missing := ""
		for _, g := range s.Grants {
			for _, action := range f.MissingPermissions {
				if action == g.Action {
					missing += fmt.Sprintf(", %s (%s)", action, g.For)
				}
			}
		}
		if missing == "" {
			continue
		}
		out = append(out, Finding{
			Object: "IAM statement " + s.Sid, Seen: "the role may not call " + missing[2:],
			Remedy: fmt.Sprintf("give the role the policy that `dovetail iam-policy --cluster-name %s` prints; see its --help", f.ClusterName),
		})
	}
	return out
}
