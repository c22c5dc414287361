package docs

import (
	"slices"
	"strings"

	"github.com/dovetail-k8s/dovetail/internal/aws/policy"
)

// ModulePolicyTemplate is the file of the example for the module terraform-aws-modules/eks with what its policy lacks.
const ModulePolicyTemplate = "examples/terraform-module/policy.json.tftpl"

// beyondModule are the statements that the policy of the module lacks, in part or as a whole.
var beyondModule = []string{
	"AllowScopedEC2InstanceAccessActions", "AllowAdoptionOfInstances", "AllowScopedConsoleOutput", "AllowAdoptionOfInstanceProfiles",
	"AllowUnscopedInstanceProfileListAction", "AllowNodeRoleRead", "AllowAccessEntryRead", "AllowZonalShiftStatusReadOnly",
	"AllowRegionalReadActions",
}

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
	return asTemplate(func(policy.Statement) bool { return true })
}

// ModulePolicy is the part of the policy that a role of the module needs in addition.
func ModulePolicy() (string, error) {
	return asTemplate(func(s policy.Statement) bool { return slices.Contains(beyondModule, s.Sid) })
}

// asTemplate is the part of the policy with these statements as a template of Terraform.
func asTemplate(wanted func(policy.Statement) bool) (string, error) {
	document, err := policy.New(policy.Params{
		Cluster: "STANDINCLUSTER", Identity: standIns[0].text, Region: "xx-somewhere-1", Account: "000000000000",
		Queues: []string{"STANDINQUEUE"}, NodeRoles: []string{"STANDINROLE"},
	})
	if err != nil {
		return "", err
	}
	document = slices.DeleteFunc(document, func(s policy.Statement) bool { return !wanted(s) })
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
