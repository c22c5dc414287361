package docs

import (
	"strings"

	"github.com/dovetail-k8s/dovetail/internal/aws/policy"
)

// PolicyTemplate is the file of the Terraform example with the policy of the controller's role.
const PolicyTemplate = "examples/terraform/policy.json.tftpl"

// stand-ins for what differs between clusters. They pass the policy's own validation, and occur in no policy otherwise.
var standIns = []struct{ text, variable string }{
	{"00000000-0000-0000-0000-000000000000", "identity"},
	{"000000000000", "account"},
	{"xx-somewhere-1", "region"},
	{"STANDINCLUSTER", "cluster_name"},
	{"STANDINQUEUE", "queue"},
	{"STANDINROLE", "node_role"},
}

// Policy is the policy of `dovetail iam-policy` as a template of Terraform.
func Policy() (string, error) {
	document, err := policy.New(policy.Params{
		Cluster: "STANDINCLUSTER", Identity: standIns[0].text, Region: "xx-somewhere-1", Account: "000000000000",
		Queues: []string{"STANDINQUEUE"}, NodeRoles: []string{"STANDINROLE"},
	})
	if err != nil {
		return "", err
	}
	out, err := document.JSON()
	if err != nil {
		return "", err
	}
	// What IAM itself replaces stays.
	text := strings.ReplaceAll(string(out), "${", "$${")
	for _, s := range standIns {
		text = strings.ReplaceAll(text, s.text, "${"+s.variable+"}")
	}
	return strings.TrimRight(strings.ReplaceAll(text, `"arn:aws:`, `"arn:${partition}:`), "\n") + "\n", nil
}
