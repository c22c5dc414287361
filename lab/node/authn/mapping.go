package authn

import (
	"fmt"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"
)

// Mode is a cluster's authentication mode (EKS: accessConfig.authenticationMode).
type Mode string

// The authentication modes of EKS.
const (
	ModeConfigMap       Mode = "CONFIG_MAP"
	ModeAPI             Mode = "API"
	ModeAPIAndConfigMap Mode = "API_AND_CONFIG_MAP"
)

func (m Mode) usesEntries() bool   { return m == ModeAPI || m == ModeAPIAndConfigMap }
func (m Mode) usesConfigMap() bool { return m == ModeConfigMap || m == ModeAPIAndConfigMap }

// AccessEntry is an EKS access entry.
type AccessEntry struct {
	// PrincipalARN is the role or user, a role with its path.
	PrincipalARN string
	// Type is STANDARD, EC2_LINUX, EC2_WINDOWS, FARGATE_LINUX, HYBRID_LINUX, EC2, ...
	Type     string
	Username string
	Groups   []string
}

// AuthMap is the content of the ConfigMap aws-auth.
type AuthMap struct {
	Roles, Users []AuthMapEntry
}

// AuthMapEntry maps one principal.
type AuthMapEntry struct {
	RoleARN  string   `json:"rolearn,omitempty"`
	UserARN  string   `json:"userarn,omitempty"`
	Username string   `json:"username"`
	Groups   []string `json:"groups,omitempty"`
}

// ParseAuthMap reads the data of the ConfigMap aws-auth.
func ParseAuthMap(data map[string]string) (AuthMap, error) {
	var m AuthMap
	if err := yaml.Unmarshal([]byte(data["mapRoles"]), &m.Roles); err != nil {
		return AuthMap{}, fmt.Errorf("ConfigMap kube-system/aws-auth: mapRoles: %w", err)
	}
	if err := yaml.Unmarshal([]byte(data["mapUsers"]), &m.Users); err != nil {
		return AuthMap{}, fmt.Errorf("ConfigMap kube-system/aws-auth: mapUsers: %w", err)
	}
	return m, nil
}

// Mapping is the Kubernetes user of a principal. Username may hold templates, see expand.
type Mapping struct {
	Username string
	Groups   []string
}

// lookup finds the principal. The comparison is literal but for case: a role that is written with
// its path is another principal, and matches nobody.
func (m AuthMap) lookup(principal string) (Mapping, bool) {
	for _, e := range m.Roles {
		if strings.EqualFold(e.RoleARN, principal) {
			return Mapping{Username: e.Username, Groups: e.Groups}, true
		}
	}
	for _, e := range m.Users {
		if strings.EqualFold(e.UserARN, principal) {
			return Mapping{Username: e.Username, Groups: e.Groups}, true
		}
	}
	return Mapping{}, false
}

// isPrincipal reports whether an access entry is of the principal. EKS knows principals by their
// unique ID, so the path in the entry's ARN does not matter.
func isPrincipal(entryARN, principal string) bool {
	return strings.EqualFold(withoutPath(entryARN), principal)
}

// withoutPath turns arn:aws:iam::1:role/a/b/NAME into arn:aws:iam::1:role/NAME.
func withoutPath(arn string) string {
	head, rest, ok := strings.Cut(arn, ":role/")
	if !ok {
		return arn
	}
	return head + ":role/" + rest[strings.LastIndex(rest, "/")+1:]
}

const nodeUsername = "system:node:{{EC2PrivateDNSName}}"

// mapping is what an access entry of its type stands for. The types for nodes bring their own user
// and groups.
func (e AccessEntry) mapping(id Identity) Mapping {
	switch e.Type {
	case "EC2_LINUX":
		return Mapping{Username: nodeUsername, Groups: []string{"system:bootstrappers", "system:nodes"}}
	case "EC2_WINDOWS":
		return Mapping{Username: nodeUsername, Groups: []string{"eks:kube-proxy-windows", "system:bootstrappers", "system:nodes"}}
	case "FARGATE_LINUX", "HYBRID_LINUX":
		return Mapping{Username: "system:node:{{SessionName}}", Groups: []string{"system:bootstrappers", "system:nodes"}}
	}
	m := Mapping{Username: e.Username, Groups: e.Groups}
	if m.Username == "" {
		m.Username = e.PrincipalARN
		if id.Session != "" {
			m.Username = strings.TrimSuffix(id.ARN, id.Session) + "{{SessionName}}"
		}
	}
	return m
}

var template = regexp.MustCompile(`\{\{\s*(\w+)\s*\}\}`)

// expand fills the templates of a username in. privateDNSName is called only if it is requested.
func expand(username string, id Identity, privateDNSName func() (string, error)) (string, error) {
	var failure error
	out := template.ReplaceAllStringFunc(username, func(match string) string {
		switch name := template.FindStringSubmatch(match)[1]; name {
		case "EC2PrivateDNSName":
			dns, err := privateDNSName()
			if err != nil {
				failure = err
			}
			return dns
		case "SessionName":
			return strings.ReplaceAll(id.Session, "@", "-")
		case "SessionNameRaw":
			return id.Session
		case "AccountID":
			return id.Account
		case "AccessKeyID":
			return id.AccessKeyID
		default:
			failure = fmt.Errorf("username %q: unknown template %s", username, name)
			return ""
		}
	})
	return out, failure
}
