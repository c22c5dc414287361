package eks

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

// The types of access entry.
const (
	Standard     = "STANDARD"
	EC2          = "EC2" // nodes of Auto Mode
	EC2Linux     = "EC2_LINUX"
	EC2Windows   = "EC2_WINDOWS"
	FargateLinux = "FARGATE_LINUX"
	HybridLinux  = "HYBRID_LINUX"
)

// AccessEntry maps an IAM principal to a Kubernetes user and groups.
type AccessEntry struct {
	PrincipalARN string
	ARN          string // assigned on creation
	// Type defaults to STANDARD.
	Type string
	// Username may hold {{SessionName}}, {{EC2PrivateDNSName}} and the like. Entries for nodes have a fixed one.
	Username string
	// Groups of an entry for nodes are fixed.
	Groups   []string
	Tags     map[string]string
	Created  time.Time
	Modified time.Time
	// Policies are the EKS access policies that are associated, by ARN.
	Policies []PolicyAssociation

	// token is the client's idempotency token: the same creation twice is one.
	token string
}

// PolicyAssociation gives an access entry the permissions of an EKS access policy.
type PolicyAssociation struct {
	PolicyARN string
	// Scope is "cluster" or "namespace"; Namespaces belong to the latter.
	Scope      string
	Namespaces []string
	Created    time.Time
	Modified   time.Time
}

// nodeIdentity is what EKS makes of the nodes of an entry's type.
type nodeIdentity struct {
	username string
	groups   []string
}

// identityOf returns the fixed identity of a type of entry for nodes, and false for STANDARD.
func identityOf(kind string) (nodeIdentity, bool) {
	byInstance, bySession := "system:node:{{EC2PrivateDNSName}}", "system:node:{{SessionName}}"
	switch kind {
	case EC2, EC2Linux:
		return nodeIdentity{byInstance, []string{"system:nodes"}}, true
	case EC2Windows:
		return nodeIdentity{byInstance, []string{"eks:kube-proxy-windows", "system:nodes"}}, true
	case FargateLinux:
		return nodeIdentity{bySession, []string{"system:bootstrappers", "system:node-proxier", "system:nodes"}}, true
	case HybridLinux:
		return nodeIdentity{bySession, []string{"system:bootstrappers", "system:nodes"}}, true
	}
	return nodeIdentity{}, false
}

// CreateAccessEntry adds an access entry to a cluster as the API would.
func (e *EKS) CreateAccessEntry(clusterName string, in AccessEntry) (AccessEntry, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c, err := e.findForEntries(clusterName)
	if err != nil {
		return AccessEntry{}, err
	}
	entry := in.clone()
	entry.Type = cmp.Or(entry.Type, Standard)
	if err := e.checkPrincipal(entry.PrincipalARN, entry.Type); err != nil {
		return AccessEntry{}, err
	}
	identity, forNodes := identityOf(entry.Type)
	switch {
	case forNodes && (entry.Username != "" || len(entry.Groups) > 0):
		return AccessEntry{}, invalid("The username and kubernetesGroups of an access entry of type %s cannot be specified", entry.Type)
	case forNodes:
		entry.Username, entry.Groups = identity.username, identity.groups
	case entry.Type != Standard:
		return AccessEntry{}, invalid("The specified access entry type is invalid: %s", entry.Type)
	}
	entry.Username = cmp.Or(entry.Username, defaultUsername(entry.PrincipalARN))
	if !forNodes {
		if err := checkStandard(entry); err != nil {
			return AccessEntry{}, err
		}
	}
	if present, exists := c.entries[entry.PrincipalARN]; exists {
		if entry.token != "" && entry.token == present.token {
			return present.clone(), nil
		}
		return AccessEntry{}, inUse("The specified access entry resource is already in use on this cluster.")
	}
	entry.Created = e.cfg.Now().UTC()
	entry.Modified, entry.Policies = entry.Created, nil
	kind, name, _ := strings.Cut(entry.PrincipalARN[strings.LastIndex(entry.PrincipalARN, ":")+1:], "/")
	entry.ARN = strings.Join([]string{
		"arn:aws:eks:" + e.cfg.Region + ":" + e.cfg.AccountID + ":access-entry", c.Name, kind, e.cfg.AccountID, name, e.newUUID(),
	}, "/")
	c.entries[entry.PrincipalARN] = &entry
	return entry.clone(), nil
}

// AccessEntries returns the access entries of a cluster, sorted by principal.
func (e *EKS) AccessEntries(clusterName string) ([]AccessEntry, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c, err := e.find(clusterName)
	if err != nil {
		return nil, err
	}
	var out []AccessEntry
	for _, principal := range slices.Sorted(maps.Keys(c.entries)) {
		out = append(out, c.entries[principal].clone())
	}
	return out, nil
}

// findForEntries returns a cluster that has access entries. The caller holds the lock.
func (e *EKS) findForEntries(name string) (*cluster, error) {
	c, err := e.find(name)
	if err != nil {
		return nil, err
	}
	if c.AuthenticationMode == ModeConfigMap {
		return nil, protocol.Errorf(
			"InvalidRequestException",
			"The cluster's authentication mode must be set to one of [API, API_AND_CONFIG_MAP] to perform this operation.",
		)
	}
	return c, nil
}

var principalPattern = regexp.MustCompile(`^arn:aws[\w-]*:iam::(\d{12}):(role|user)/([!-~]*/)?([\w+=,.@-]+)$`)

// checkPrincipal holds that the principal can have an entry of that type. Of the account's own roles, EKS knows whether
// they exist.
func (e *EKS) checkPrincipal(arn, kind string) error {
	m := principalPattern.FindStringSubmatch(arn)
	if m == nil {
		return invalid("The specified principalArn is invalid: invalid principal.")
	}
	if kind != Standard && m[2] != "role" {
		return invalid("The specified principalArn is invalid: an access entry of type %s must be an IAM role.", kind)
	}
	if m[1] != e.cfg.AccountID || m[2] != "role" {
		return nil
	}
	if role, ok := e.cfg.IAM.Role(m[4]); !ok || role.ARN != arn {
		return invalid("The specified principalArn is invalid: invalid principal.")
	}
	return nil
}

// defaultUsername is the name of the session of a role, the ARN of a user.
func defaultUsername(principal string) string {
	m := principalPattern.FindStringSubmatch(principal)
	if m == nil || m[2] != "role" {
		return principal
	}
	return "arn:aws:sts::" + m[1] + ":assumed-role/" + m[4] + "/{{SessionName}}"
}

// checkStandard checks the names that a user may choose.
func checkStandard(entry AccessEntry) error {
	for _, prefix := range []string{"system:", "eks:", "aws:", "amazon:", "iam:"} {
		if strings.HasPrefix(entry.Username, prefix) {
			return invalid("The username must not begin with %s", prefix)
		}
	}
	for _, group := range entry.Groups {
		if strings.HasPrefix(group, "system:") {
			return invalid("The kubernetes group name %s is invalid, it cannot start with system:", group)
		}
	}
	return nil
}

func (a AccessEntry) clone() AccessEntry {
	a.Groups, a.Tags, a.Policies = slices.Clone(a.Groups), maps.Clone(a.Tags), slices.Clone(a.Policies)
	for i := range a.Policies {
		a.Policies[i].Namespaces = slices.Clone(a.Policies[i].Namespaces)
	}
	return a
}
