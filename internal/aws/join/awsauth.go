package join

import (
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// mapRole is an item of mapRoles.
type mapRole struct {
	RoleARN  string   `json:"rolearn"`
	Username string   `json:"username"`
	Groups   []string `json:"groups"`
}

// roles parses mapRoles.
func (m AWSAuth) roles() ([]mapRole, error) {
	var out []mapRole
	if err := yaml.Unmarshal([]byte(m.Data["mapRoles"]), &out); err != nil {
		return nil, err
	}
	return out, nil
}

// entry returns the entry of a role in mapRoles. If there are several, the last one wins.
func (m AWSAuth) entry(role string) (mapRole, bool) {
	roles, err := m.roles()
	if err != nil {
		return mapRole{}, false
	}
	for _, r := range slices.Backward(roles) {
		if sameRole(r.RoleARN, role) {
			return r, true
		}
	}
	return mapRole{}, false
}

// mappedAsUser reports whether mapUsers has the ARN.
func (m AWSAuth) mappedAsUser(arn string) bool {
	var users []struct {
		UserARN string `json:"userarn"`
	}
	if err := yaml.Unmarshal([]byte(m.Data["mapUsers"]), &users); err != nil {
		return false
	}
	return slices.ContainsFunc(users, func(u struct {
		UserARN string `json:"userarn"`
	},
	) bool {
		return sameRole(u.UserARN, arn)
	})
}

// manifestWith returns the ConfigMap as a manifest in which the given entry replaces all others of its role.
func (m AWSAuth) manifestWith(line mapRole) (string, error) {
	roles, err := m.roles()
	if err != nil {
		return "", err
	}
	roles = slices.DeleteFunc(roles, func(r mapRole) bool { return sameRole(r.RoleARN, line.RoleARN) })
	text, err := yaml.Marshal(append(roles, line))
	if err != nil {
		return "", err
	}
	data := map[string]string{}
	for key, value := range m.Data {
		data[key] = value
	}
	data["mapRoles"] = string(text)
	out, err := yaml.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]string{"namespace": "kube-system", "name": "aws-auth"}, "data": data,
	})
	return string(out), err
}

// checkAWSAuth looks the role up in aws-auth. mapped is true if aws-auth decides about the role; then a finding with a
// cause describes what is wrong with the entry. err is the reason why aws-auth could not be read.
func (a Access) checkAWSAuth(role string) (f cloudprovider.Finding, mapped bool, err string) {
	if a.AWSAuthErr != "" {
		return f, false, a.AWSAuthErr
	}
	if !a.AWSAuth.Found {
		return f, false, ""
	}
	if _, parse := a.AWSAuth.roles(); parse != nil {
		f = misconfiguration(
			AuthMapMalformed,
			RoleScope(role),
			fmt.Sprintf("mapRoles of ConfigMap kube-system/aws-auth cannot be parsed, so no role in it can join the cluster: %v", parse),
			"",
		)
		f.Remedy, f.Manifest = a.mapRole(role)
		if a.Mode.usesEntries() {
			f.Remedy = "correct mapRoles with kubectl -n kube-system edit configmap aws-auth, or: " + f.Remedy
		}
		return f, true, ""
	}
	if r, there := a.AWSAuth.entry(role); there {
		if wrong := a.entryProblem(r, role); wrong != "" {
			f = a.malformedEntry(role, wrong)
			switch {
			case a.lacksKubeProxyOnly(r, role):
				manifest := f.Manifest
				f = a.kubeProxyDenied("in ConfigMap kube-system/aws-auth "+wrong, f.Remedy)
				f.Manifest = manifest
			case a.mayWork(r, role):
				f.Certainty = cloudprovider.Likely
			}
		}
		return f, true, ""
	}
	if a.AWSAuth.mappedAsUser(role) {
		return a.malformedEntry(role, fmt.Sprintf("node role %s is listed under mapUsers; move it to mapRoles", role)), true, ""
	}
	return f, false, ""
}

// entryProblem returns what is wrong with the node role's entry; empty if nothing is.
func (a Access) entryProblem(r mapRole, role string) string {
	var groups []string
	for _, g := range a.wantedGroups() {
		if !slices.Contains(r.Groups, g) {
			groups = append(groups, g)
		}
	}
	switch {
	case !strings.EqualFold(r.RoleARN, withoutPath(r.RoleARN)):
		return fmt.Sprintf("%s is written with its path; aws-auth compares it with %s", r.RoleARN, withoutPath(role))
	case !strings.EqualFold(partitionOf(r.RoleARN), partitionOf(role)):
		return fmt.Sprintf("%s is written with partition %s; the node role is %s", r.RoleARN, partitionOf(r.RoleARN), withoutPath(role))
	case r.Username != nodeUsername:
		return fmt.Sprintf("node role %s has username %q, nodes need %q", r.RoleARN, r.Username, nodeUsername)
	case len(groups) > 0:
		return fmt.Sprintf("node role %s lacks the groups %s", r.RoleARN, strings.Join(groups, ", "))
	}
	return ""
}

// lacksKubeProxyOnly reports whether an entry has everything that nodes need to join.
func (a Access) lacksKubeProxyOnly(r mapRole, role string) bool {
	linux := a
	linux.Windows = false
	return a.Windows && linux.entryProblem(r, role) == ""
}

// mayWork reports whether an incorrect entry still lets some nodes join. An ARN of another partition never matches, but
// the right partition is certain only if IAM has returned the role.
func (a Access) mayWork(r mapRole, role string) bool {
	matches := strings.EqualFold(r.RoleARN, withoutPath(role)) ||
		a.roleOfIAM() == "" && strings.EqualFold(r.RoleARN, withoutPath(r.RoleARN))
	return matches && strings.HasPrefix(r.Username, "system:node:") && slices.Contains(r.Groups, "system:nodes")
}

// malformedEntry is a finding about one entry of aws-auth. Correcting the entry helps in every authentication mode.
func (a Access) malformedEntry(role, wrong string) cloudprovider.Finding {
	f := misconfiguration(AuthMapMalformed, RoleScope(role), "in ConfigMap kube-system/aws-auth "+wrong,
		"kubectl -n kube-system edit configmap aws-auth, and set its entry in mapRoles to:\n"+a.wantedEntryYAML(role))
	if manifest, err := a.AWSAuth.manifestWith(a.wantedEntry(role)); err == nil {
		f.Manifest = manifest
	}
	return f
}
