package join

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws/arn"
	"sigs.k8s.io/yaml"

	"github.com/dovetail-k8s/dovetail/internal/aws/partition"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// Mode states where a cluster looks up the identities of IAM principals.
type Mode string

// The authentication modes of EKS.
const (
	ModeConfigMap       Mode = "CONFIG_MAP"
	ModeAPI             Mode = "API"
	ModeAPIAndConfigMap Mode = "API_AND_CONFIG_MAP"
)

func (m Mode) usesEntries() bool   { return m == ModeAPI || m == ModeAPIAndConfigMap }
func (m Mode) usesConfigMap() bool { return m == ModeConfigMap || m == ModeAPIAndConfigMap }

// Types of access entries that concern nodes.
const (
	entryLinux    = "EC2_LINUX"
	entryWindows  = "EC2_WINDOWS"
	entryAuto     = "EC2"
	entryStandard = "STANDARD"
)

// Entry is an EKS access entry.
type Entry struct {
	PrincipalARN string
	Type         string
	Username     string
	Groups       []string
}

// AWSAuth is the ConfigMap kube-system/aws-auth.
type AWSAuth struct {
	// Found is false if there is no such ConfigMap.
	Found bool
	Data  map[string]string
}

// Profile is an instance profile.
type Profile struct {
	Name string
	// Found is false if there is no such profile.
	Found bool
	// Roles are ARNs; a profile holds one at most.
	Roles []string
}

// Access describes what decides whether the nodes of a class can authenticate. Beside each fact is the reason why it could not
// be read; empty if it was.
type Access struct {
	Cluster Cluster
	Mode    Mode
	ModeErr string
	// Entries are the entries of the node role, and of roles that could be confused with it.
	Entries    []Entry
	EntriesErr string
	AWSAuth    AWSAuth
	AWSAuthErr string
	Profile    Profile
	ProfileErr string
	// Role is the role of the class, a name or a path with a name; empty if the class names a profile.
	Role string
	// RoleARN is the ARN of that role, with its path; used if the profile could not be read.
	RoleARN string
	// ControllerRoles are the ARNs of the controller's own role, with and without its path.
	ControllerRoles []string
	Account         string
	// Partition is the partition of the account, such as aws-us-gov; empty stands for that of the cluster's region.
	Partition string
	Windows   bool
	// Running counts the nodes that have joined with the role; RunningErr is the reason why they are unknown.
	Running    Running
	RunningErr string
}

// Running counts nodes with a node role by operating system, as far as NodeClaims show them: managed node groups may
// run others.
type Running struct{ Linux, Windows int }

// LinuxEntryForWindows reports whether a class of Windows nodes has a role with the access entry of Linux nodes. The
// remedy then depends on the other nodes with the role.
func (a Access) LinuxEntryForWindows() bool {
	return a.Windows && slices.ContainsFunc(a.Entries, func(e Entry) bool {
		return e.Type == entryLinux && sameRole(e.PrincipalARN, a.nodeRole())
	})
}

// nodeRole returns the ARN of the role that instances will have; empty if it is unknown.
func (a Access) nodeRole() string {
	if role := a.roleOfIAM(); role != "" {
		return role
	}
	if a.Role != "" && a.Account != "" {
		return arn.ARN{
			Partition: cmp.Or(a.Partition, partition.Of(a.Cluster.Region)), Service: "iam", AccountID: a.Account,
			Resource: rolePrefix + strings.TrimPrefix(a.Role, "/"),
		}.String()
	}
	return ""
}

// roleOfIAM returns the ARN of that role as IAM returns it; empty if IAM could not be read and the ARN must be
// constructed.
func (a Access) roleOfIAM() string {
	if len(a.Profile.Roles) == 1 {
		return a.Profile.Roles[0]
	}
	return a.RoleARN
}

// wantedType returns the type that the node role's access entry should have.
func (a Access) wantedType() string {
	if a.Windows {
		return entryWindows
	}
	return entryLinux
}

const nodeUsername = "system:node:{{EC2PrivateDNSName}}"

// kubeProxyGroup lets kube-proxy on Windows, which has the identity of its node, read Services and their endpoints.
const kubeProxyGroup = "eks:kube-proxy-windows"

func (a Access) wantedGroups() []string {
	groups := []string{"system:bootstrappers", "system:nodes"}
	if a.Windows {
		groups = append([]string{kubeProxyGroup}, groups...)
	}
	return groups
}

// CheckRole checks whether the instances of a class get the right role, and whether the cluster recognizes it.
func CheckRole(a Access) []cloudprovider.Finding {
	var out []cloudprovider.Finding
	profile, broken := a.checkProfile()
	if broken {
		return []cloudprovider.Finding{profile}
	}
	if a.ProfileErr != "" {
		out = append(out, unchecked(RoleMappingUnchecked, "the role in instance profile "+a.Profile.Name, a.ProfileErr))
	}
	role := a.nodeRole()
	switch {
	case role == "":
		return out
	case a.ModeErr != "":
		return append(out, unchecked(RoleMappingUnchecked, "the authentication mode of cluster "+a.Cluster.Name, a.ModeErr))
	}
	return append(out, a.checkMapping(role)...)
}

func (a Access) checkProfile() (cloudprovider.Finding, bool) {
	switch p := a.Profile; {
	case a.ProfileErr != "" || p.Name == "":
		return cloudprovider.Finding{}, false
	case !p.Found:
		return misconfiguration(InstanceProfileNotFound, "profile/"+p.Name, fmt.Sprintf("IAM has no instance profile %q", p.Name),
			fmt.Sprintf("aws iam create-instance-profile --instance-profile-name %s", p.Name)), true
	case len(p.Roles) == 0:
		return misconfiguration(
			InstanceProfileWrongRole,
			"profile/"+p.Name,
			fmt.Sprintf("instance profile %q has no role", p.Name),
			fmt.Sprintf(
				"aws iam add-role-to-instance-profile --instance-profile-name %s --role-name %s",
				p.Name,
				cmp.Or(RoleName(a.Role), "ROLE"),
			),
		), true
	case a.Role != "" && RoleName(p.Roles[0]) != RoleName(a.Role):
		return misconfiguration(
			InstanceProfileWrongRole,
			"profile/"+p.Name,
			fmt.Sprintf("instance profile %q has role %s, but the node class specifies %s", p.Name, RoleName(p.Roles[0]), RoleName(a.Role)),
			fmt.Sprintf(
				"aws iam remove-role-from-instance-profile --instance-profile-name %[1]s --role-name %[2]s && aws iam add-role-to-instance-profile --instance-profile-name %[1]s --role-name %[3]s",
				p.Name,
				RoleName(p.Roles[0]),
				RoleName(a.Role),
			),
		), true
	}
	return cloudprovider.Finding{}, false
}

// checkMapping looks the role up as the authentication mode requires. An access entry wins over aws-auth.
func (a Access) checkMapping(role string) []cloudprovider.Finding {
	var missed []cloudprovider.Finding
	if a.Mode.usesEntries() {
		if a.EntriesErr != "" {
			missed = append(missed, unchecked(RoleMappingUnchecked, "the access entries of cluster "+a.Cluster.Name, a.EntriesErr))
		}
		for _, e := range a.Entries {
			if sameRole(e.PrincipalARN, role) {
				return a.checkAccessEntry(e)
			}
		}
	}
	if a.Mode.usesConfigMap() {
		found, mapped, err := a.checkAWSAuth(role)
		switch {
		case err != "":
			missed = append(missed, unchecked(RoleMappingUnchecked, "ConfigMap kube-system/aws-auth", err))
		case mapped && found.Cause == "":
			return nil
		case mapped && len(missed) == 0:
			return []cloudprovider.Finding{found}
		case mapped:
			// An access entry that could not be read would win.
			found.Certainty = cloudprovider.Likely
			return append([]cloudprovider.Finding{found}, missed...)
		}
	}
	if len(missed) > 0 {
		return missed
	}
	return []cloudprovider.Finding{a.unmapped(role)}
}

func (a Access) checkAccessEntry(e Entry) []cloudprovider.Finding {
	want := a.wantedType()
	switch {
	case e.Type == want || (e.Type == entryWindows && !a.Windows):
		return nil // the type for Windows grants everything that Linux needs, and one group more
	case e.Type == entryLinux:
		return []cloudprovider.Finding{a.kubeProxyDenied(
			fmt.Sprintf("the access entry of node role %s has type %s, which lacks the group %s", e.PrincipalARN, e.Type, kubeProxyGroup),
			fmt.Sprintf("leave this entry: its type cannot be changed, and %s. "+
				"Give the Windows EC2NodeClass a node role of its own (spec.role), and map that role:\n%s",
				a.linuxNodesCutOff(), a.createEntry(ownRole(e.PrincipalARN))))}
	}
	f := misconfiguration(AccessEntryWrongType, RoleScope(e.PrincipalARN),
		fmt.Sprintf("the access entry of node role %s has type %s, nodes need %s", e.PrincipalARN, e.Type, want), "")
	switch e.Type {
	case entryStandard: // no node uses it
		f.Deletes = true
		f.Remedy = fmt.Sprintf("aws eks delete-access-entry %s && %s", a.entryFlags(e.PrincipalARN), a.createEntry(e.PrincipalARN))
	default:
		f.Remedy = "leave this entry: deleting it would cut off the nodes that use it. " +
			"Give the EC2NodeClass a node role of its own (spec.role), and map that role:\n" + a.createEntry(ownRole(e.PrincipalARN))
	}
	if e.Type == entryAuto { // nodes of Auto Mode get their permissions from an access policy, which may exist
		f.Certainty = cloudprovider.Likely
	}
	return []cloudprovider.Finding{f}
}

// kubeProxyDenied is about Windows nodes that join with the access entry of Linux nodes. Unlike on Linux, their
// kube-proxy has the identity of the node. It cannot read what it needs, unless somebody has granted that to another of
// its groups.
func (a Access) kubeProxyDenied(why, remedy string) cloudprovider.Finding {
	joined := "Windows nodes join"
	if a.Running.Windows > 0 {
		joined = fmt.Sprintf("Windows nodes join (%d run)", a.Running.Windows)
	}
	return cloudprovider.Finding{
		Cause: WindowsKubeProxyDenied, Certainty: cloudprovider.Likely, Scope: RoleScope(a.nodeRole()), FromConfiguration: true, NodeJoins: true,
		Message: joined + ", but their kube-proxy is not allowed to read Services, so pods on them reach neither Services nor DNS: " + why,
		Remedy:  remedy,
	}
}

// linuxNodesCutOff describes the Linux nodes that would be cut off without the access entry.
func (a Access) linuxNodesCutOff() string {
	switch n := a.Running.Linux; {
	case a.RunningErr != "" || n == 0:
		return "deleting it would cut off every running Linux node"
	case n == 1:
		return "deleting it would cut off 1 running Linux node"
	default:
		return fmt.Sprintf("deleting it would cut off %d running Linux nodes", n)
	}
}

// ownRole returns the ARN of a new role, beside one that others use.
func ownRole(roleARN string) string {
	return strings.TrimSuffix(withoutPath(roleARN), RoleName(roleARN)) + "NEW_ROLE"
}

// unmapped reports that the role is mapped nowhere, and what is mapped instead.
func (a Access) unmapped(role string) cloudprovider.Finding {
	scope := RoleScope(role)
	where := a.mappingLocations()
	if !a.Mode.usesConfigMap() && a.AWSAuthErr == "" {
		if _, mapped, err := a.checkAWSAuth(role); mapped && err == "" {
			return misconfiguration(
				AuthModeIgnoresMapping,
				scope,
				fmt.Sprintf(
					"node role %s is mapped in ConfigMap kube-system/aws-auth, which cluster %s ignores: its authentication mode is %s",
					role,
					a.Cluster.Name,
					a.Mode,
				),
				a.createEntry(role),
			)
		}
	}
	if controller, where, ok := a.controllerMapped(); ok && !sameRole(controller, role) {
		f := misconfiguration(ControllerRoleMapped, scope,
			fmt.Sprintf("%s maps the controller's role %s as a node role; the node role %s is not mapped", where, controller, role), "")
		f.Remedy, f.Manifest = a.mapRole(role)
		return f
	}
	if other := a.roleInOtherAccount(role); other != "" {
		f := misconfiguration(
			NodeRoleOfOtherAccount,
			scope,
			fmt.Sprintf("%s is mapped, but it belongs to another account; the node role is %s", other, role),
			"",
		)
		f.Remedy, f.Manifest = a.mapRole(role)
		return f
	}
	f := misconfiguration(
		NodeRoleNotMapped,
		scope,
		fmt.Sprintf("node role %s is not mapped in %s (authentication mode %s), so its nodes cannot join", role, where, a.Mode),
		"",
	)
	f.Remedy, f.Manifest = a.mapRole(role)
	return f
}

func (a Access) mappingLocations() string {
	var places []string
	if a.Mode.usesEntries() {
		places = append(places, "the access entries of cluster "+a.Cluster.Name)
	}
	if a.Mode.usesConfigMap() {
		places = append(places, "ConfigMap kube-system/aws-auth")
	}
	return strings.Join(places, " or ")
}

// controllerMapped finds the controller's role where a node role should be.
func (a Access) controllerMapped() (arn, where string, ok bool) {
	isController := func(arn string) bool {
		return slices.ContainsFunc(a.ControllerRoles, func(c string) bool { return sameRole(c, arn) })
	}
	if a.Mode.usesEntries() {
		for _, e := range a.Entries {
			if strings.HasPrefix(e.Type, "EC2") && isController(e.PrincipalARN) {
				return e.PrincipalARN, "an access entry of type " + e.Type, true
			}
		}
	}
	if a.Mode.usesConfigMap() {
		roles, _ := a.AWSAuth.roles()
		for _, r := range roles {
			if isController(r.RoleARN) && slices.Contains(r.Groups, "system:nodes") {
				return r.RoleARN, "ConfigMap kube-system/aws-auth", true
			}
		}
	}
	return "", "", false
}

// roleInOtherAccount finds a mapped role of the same name in another account.
func (a Access) roleInOtherAccount(role string) string {
	var mapped []string
	if a.Mode.usesEntries() {
		for _, e := range a.Entries {
			mapped = append(mapped, e.PrincipalARN)
		}
	}
	if a.Mode.usesConfigMap() {
		roles, _ := a.AWSAuth.roles()
		for _, r := range roles {
			mapped = append(mapped, r.RoleARN)
		}
	}
	for _, arn := range mapped {
		if RoleName(arn) == RoleName(role) && account(arn) != "" && account(arn) != account(role) {
			return arn
		}
	}
	return ""
}

// mapRole returns how to map the role, as a command, and as a manifest if aws-auth is the only place.
func (a Access) mapRole(role string) (remedy, manifest string) {
	if a.Mode.usesEntries() {
		return a.createEntry(role), ""
	}
	manifest, err := a.AWSAuth.manifestWith(a.wantedEntry(role))
	if err != nil {
		return "correct mapRoles of ConfigMap kube-system/aws-auth, and add:\n" + a.wantedEntryYAML(role), ""
	}
	return "kubectl -n kube-system edit configmap aws-auth, and add to mapRoles:\n" + a.wantedEntryYAML(role), manifest
}

func (a Access) entryFlags(arn string) string {
	return fmt.Sprintf("--cluster-name %s --principal-arn %s --region %s", a.Cluster.Name, arn, a.Cluster.Region)
}

func (a Access) createEntry(arn string) string {
	return fmt.Sprintf("aws eks create-access-entry %s --type %s", a.entryFlags(arn), a.wantedType())
}

// wantedEntry returns the entry of aws-auth that the role needs. It keeps the groups of an existing entry: other nodes
// may use them.
func (a Access) wantedEntry(role string) mapRole {
	groups := a.wantedGroups()
	if there, ok := a.AWSAuth.entry(role); ok {
		for _, g := range there.Groups {
			if !slices.Contains(groups, g) {
				groups = append(groups, g)
			}
		}
	}
	return mapRole{RoleARN: withoutPath(role), Username: nodeUsername, Groups: groups}
}

// wantedEntryYAML returns that entry as YAML.
func (a Access) wantedEntryYAML(role string) string {
	out, err := yaml.Marshal([]mapRole{a.wantedEntry(role)})
	if err != nil { // a struct of strings
		return ""
	}
	return string(out)
}

// withoutPath turns arn:aws:iam::1:role/a/b/NAME into arn:aws:iam::1:role/NAME, as aws-auth expects it.
func withoutPath(roleARN string) string {
	parsed := parseARN(roleARN)
	if !strings.HasPrefix(parsed.Resource, rolePrefix) {
		return roleARN
	}
	return strings.TrimSuffix(roleARN, parsed.Resource) + rolePrefix + RoleName(parsed.Resource)
}

// RoleName returns the name of a role from its name, its path and name, or its ARN.
func RoleName(role string) string { return role[strings.LastIndexByte(role, '/')+1:] }

// rolePrefix is the prefix of the resource in a role's ARN.
const rolePrefix = "role/"

// account is the account ID in an ARN; empty if the text is not an ARN.
func account(text string) string { return parseARN(text).AccountID }

// partitionOf is the partition in an ARN; empty if the text is not an ARN.
func partitionOf(text string) string { return parseARN(text).Partition }

// parseARN returns the zero value for text that is not an ARN. The case of the prefix does not matter: aws-auth compares
// ARNs in lower case.
func parseARN(text string) arn.ARN {
	const prefix = "arn:"
	if len(text) >= len(prefix) && strings.EqualFold(text[:len(prefix)], prefix) {
		text = prefix + text[len(prefix):]
	}
	parsed, err := arn.Parse(text)
	if err != nil {
		return arn.ARN{}
	}
	return parsed
}

// sameRole compares account and name, which are unique. Paths differ from place to place, and the partition of a
// constructed ARN may be wrong.
func sameRole(a, b string) bool {
	if !isRole(a) || !isRole(b) {
		return strings.EqualFold(a, b)
	}
	return account(a) == account(b) && strings.EqualFold(RoleName(a), RoleName(b))
}

func isRole(text string) bool {
	parsed := parseARN(text)
	return parsed.AccountID != "" && strings.HasPrefix(parsed.Resource, rolePrefix)
}
