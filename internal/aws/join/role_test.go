package join

import (
	"strings"
	"testing"

	"github.com/dovetail-k8s/dovetail/internal/cloud"
)

const (
	nodeRole       = "arn:aws:iam::111122223333:role/node"
	pathRole       = "arn:aws:iam::111122223333:role/team/a/node"
	controllerRole = "arn:aws:iam::111122223333:role/controller"
)

// goodLine is the entry of mapRoles that lets nodes in.
func goodLine(arn string) string {
	return "- rolearn: " + arn + "\n  username: system:node:{{EC2PrivateDNSName}}\n  groups:\n  - system:bootstrappers\n  - system:nodes\n"
}

func authMap(roles string) AuthMap {
	return AuthMap{Found: true, Data: map[string]string{"mapRoles": roles}}
}

func entries(pairs ...string) (out []Entry) {
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, Entry{PrincipalARN: pairs[i], Type: pairs[i+1]})
	}
	return out
}

// sound is a class whose profile holds its role, in a cluster of that mode that maps nothing.
func sound(mode Mode) Access {
	return Access{
		Cluster: Cluster{Name: "shop", Region: "eu-west-1"}, Mode: mode, Role: "node", Account: "111122223333",
		Profile: Profile{Name: "p", Found: true, Roles: []string{nodeRole}}, ControllerRoles: []string{controllerRole},
	}
}

func TestRoles(t *testing.T) {
	const createEntry = "aws eks create-access-entry --cluster-name shop --principal-arn " + nodeRole + " --region eu-west-1 --type EC2_LINUX"
	tests := []struct {
		name   string
		mode   Mode
		change func(*Access)
		// cause of the first finding, empty for none at all; certainty "" stands for certain.
		cause     string
		certainty cloud.Certainty
		// message and remedy contain these.
		message, remedy string
	}{
		{name: "access entry, mode API", mode: ModeAPI, change: func(a *Access) { a.Entries = entries(nodeRole, "EC2_LINUX") }},
		{name: "access entry, mode API_AND_CONFIG_MAP", mode: ModeAPIAndConfigMap, change: func(a *Access) { a.Entries = entries(nodeRole, "EC2_LINUX") }},
		{name: "aws-auth, mode API_AND_CONFIG_MAP", mode: ModeAPIAndConfigMap, change: func(a *Access) { a.AuthMap = authMap(goodLine(nodeRole)) }},
		{name: "aws-auth, mode CONFIG_MAP", mode: ModeConfigMap, change: func(a *Access) { a.AuthMap = authMap(goodLine(nodeRole)) }},
		{name: "aws-auth, case of the ARN", mode: ModeConfigMap, change: func(a *Access) { a.AuthMap = authMap(goodLine(strings.ToUpper(nodeRole[:3]) + nodeRole[3:])) }},
		{name: "role with a path, in aws-auth without", mode: ModeConfigMap, change: func(a *Access) {
			a.Role, a.Profile.Roles, a.AuthMap = "team/a/node", []string{pathRole}, authMap(goodLine(nodeRole))
		}},
		{name: "role with a path, in an access entry with it", mode: ModeAPI, change: func(a *Access) {
			a.Profile.Roles, a.Entries = []string{pathRole}, entries(pathRole, "EC2_LINUX")
		}},
		{name: "a right entry wins over a wrong aws-auth", mode: ModeAPIAndConfigMap, change: func(a *Access) {
			a.Entries, a.AuthMap = entries(nodeRole, "EC2_LINUX"), authMap("- nonsense: [")
		}},

		{name: "in neither place", mode: ModeAPIAndConfigMap, cause: NodeRoleNotMapped, message: "access entries of cluster shop or ConfigMap kube-system/aws-auth", remedy: createEntry},
		{name: "no access entry", mode: ModeAPI, cause: NodeRoleNotMapped, message: nodeRole, remedy: createEntry},
		{name: "no ConfigMap aws-auth", mode: ModeConfigMap, cause: NodeRoleNotMapped, message: "ConfigMap kube-system/aws-auth", remedy: "- system:bootstrappers"},
		{name: "aws-auth with others only", mode: ModeConfigMap, change: func(a *Access) { a.AuthMap = authMap(goodLine("arn:aws:iam::111122223333:role/other")) }, cause: NodeRoleNotMapped},
		{name: "class with a profile of its own", mode: ModeAPI, change: func(a *Access) { a.Role = "" }, cause: NodeRoleNotMapped, message: nodeRole},

		{name: "controller's role in an access entry", mode: ModeAPI, change: func(a *Access) { a.Entries = entries(controllerRole, "EC2_LINUX") }, cause: ControllerRoleMapped, message: controllerRole, remedy: createEntry},
		{name: "controller's role in aws-auth", mode: ModeConfigMap, change: func(a *Access) { a.AuthMap = authMap(goodLine(controllerRole)) }, cause: ControllerRoleMapped, message: "aws-auth", remedy: "rolearn: " + nodeRole},
		{name: "controller's role mapped as an administrator", mode: ModeAPI, change: func(a *Access) { a.Entries = entries(controllerRole, "STANDARD") }, cause: NodeRoleNotMapped},
		{name: "controller and nodes both mapped", mode: ModeAPI, change: func(a *Access) { a.Entries = entries(controllerRole, "EC2_LINUX", nodeRole, "EC2_LINUX") }},

		{name: "entry of type STANDARD", mode: ModeAPI, change: func(a *Access) { a.Entries = entries(nodeRole, "STANDARD") }, cause: AccessEntryWrongType, message: "STANDARD", remedy: "aws eks delete-access-entry --cluster-name shop --principal-arn " + nodeRole + " --region eu-west-1 && " + createEntry},
		{name: "entry of type FARGATE_LINUX", mode: ModeAPI, change: func(a *Access) { a.Entries = entries(nodeRole, "FARGATE_LINUX") }, cause: AccessEntryWrongType},
		{name: "entry of type HYBRID_LINUX", mode: ModeAPI, change: func(a *Access) { a.Entries = entries(nodeRole, "HYBRID_LINUX") }, cause: AccessEntryWrongType},
		{name: "entry of type EC2, of Auto Mode", mode: ModeAPI, change: func(a *Access) { a.Entries = entries(nodeRole, "EC2") }, cause: AccessEntryWrongType, certainty: cloud.Likely},
		{name: "a wrong entry wins over a right aws-auth", mode: ModeAPIAndConfigMap, change: func(a *Access) {
			a.Entries, a.AuthMap = entries(nodeRole, "STANDARD"), authMap(goodLine(nodeRole))
		}, cause: AccessEntryWrongType},
		{name: "Windows, entry for Linux", mode: ModeAPI, change: func(a *Access) { a.Windows, a.Entries = true, entries(nodeRole, "EC2_LINUX") }, cause: AccessEntryWrongType, certainty: cloud.Likely, remedy: "--type EC2_WINDOWS"},
		{name: "Linux, entry for Windows", mode: ModeAPI, change: func(a *Access) { a.Entries = entries(nodeRole, "EC2_WINDOWS") }},

		{name: "mode ignores aws-auth", mode: ModeAPI, change: func(a *Access) { a.AuthMap = authMap(goodLine(nodeRole)) }, cause: AuthModeIgnoresMapping, message: "authentication mode is API", remedy: createEntry},

		{name: "aws-auth: no YAML", mode: ModeConfigMap, change: func(a *Access) { a.AuthMap = authMap("- rolearn: [") }, cause: AuthMapMalformed, message: "cannot be read", remedy: nodeRole},
		{name: "aws-auth: not a list", mode: ModeConfigMap, change: func(a *Access) { a.AuthMap = authMap("rolearn: x") }, cause: AuthMapMalformed},
		{name: "aws-auth: ARN with its path", mode: ModeConfigMap, change: func(a *Access) {
			a.Profile.Roles, a.AuthMap = []string{pathRole}, authMap(goodLine(pathRole))
		}, cause: AuthMapMalformed, message: "with its path", remedy: "rolearn: " + nodeRole},
		{name: "aws-auth: no group of nodes", mode: ModeConfigMap, change: func(a *Access) {
			a.AuthMap = authMap(strings.Replace(goodLine(nodeRole), "- system:nodes", "- system:masters", 1))
		}, cause: AuthMapMalformed, message: "lacks the groups system:nodes"},
		{name: "aws-auth: no group of bootstrappers", mode: ModeConfigMap, change: func(a *Access) {
			a.AuthMap = authMap(strings.Replace(goodLine(nodeRole), "  - system:bootstrappers\n", "", 1))
		}, cause: AuthMapMalformed, certainty: cloud.Likely, message: "lacks the groups system:bootstrappers"},
		{name: "aws-auth: username of a person", mode: ModeConfigMap, change: func(a *Access) {
			a.AuthMap = authMap(strings.Replace(goodLine(nodeRole), "system:node:{{EC2PrivateDNSName}}", "nodes", 1))
		}, cause: AuthMapMalformed, message: `username "nodes"`},
		{name: "aws-auth: under mapUsers", mode: ModeConfigMap, change: func(a *Access) {
			a.AuthMap = AuthMap{Found: true, Data: map[string]string{"mapUsers": "- userarn: " + nodeRole + "\n  username: x\n"}}
		}, cause: AuthMapMalformed, message: "mapUsers"},

		{name: "role of another account", mode: ModeAPI, change: func(a *Access) { a.Entries = entries("arn:aws:iam::999999999999:role/node", "EC2_LINUX") }, cause: NodeRoleOfOtherAccount, message: "999999999999"},

		{name: "profile holds another role", mode: ModeAPI, change: func(a *Access) {
			a.Profile.Roles, a.Entries = []string{controllerRole}, entries(nodeRole, "EC2_LINUX", controllerRole, "EC2_LINUX")
		}, cause: InstanceProfileWrongRole, message: "holds role controller, the node class asks for node", remedy: "--role-name controller && aws iam add-role-to-instance-profile --instance-profile-name p --role-name node"},
		{name: "profile holds no role", mode: ModeAPI, change: func(a *Access) { a.Profile.Roles = nil }, cause: InstanceProfileWrongRole, message: "holds no role"},
		{name: "no such profile", mode: ModeAPI, change: func(a *Access) { a.Role, a.Profile = "", Profile{Name: "p"} }, cause: InstanceProfileNotFound},

		{name: "EKS may not be asked", mode: "", change: func(a *Access) { a.ModeErr = "AccessDenied" }, cause: RoleMappingUnchecked, certainty: cloud.Unchecked, message: "AccessDenied"},
		{name: "entries may not be listed", mode: ModeAPI, change: func(a *Access) { a.EntriesErr = "AccessDenied" }, cause: RoleMappingUnchecked, certainty: cloud.Unchecked},
		{name: "entries may not be listed, aws-auth is right", mode: ModeAPIAndConfigMap, change: func(a *Access) {
			a.EntriesErr, a.AuthMap = "AccessDenied", authMap(goodLine(nodeRole))
		}},
		{name: "entries may not be listed, aws-auth is wrong", mode: ModeAPIAndConfigMap, change: func(a *Access) {
			a.EntriesErr, a.AuthMap = "AccessDenied", authMap(strings.Replace(goodLine(nodeRole), "EC2PrivateDNSName", "AccountID", 1))
		}, cause: AuthMapMalformed, certainty: cloud.Likely},
		{name: "aws-auth may not be read", mode: ModeConfigMap, change: func(a *Access) { a.AuthMapErr = "forbidden" }, cause: RoleMappingUnchecked, certainty: cloud.Unchecked, message: "aws-auth could not be checked: forbidden"},
		{name: "profile may not be read, role is mapped", mode: ModeAPI, change: func(a *Access) {
			a.Profile.Roles, a.ProfileErr, a.Entries = nil, "AccessDenied", entries(nodeRole, "EC2_LINUX")
		}, cause: RoleMappingUnchecked, certainty: cloud.Unchecked},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := sound(tt.mode)
			if tt.change != nil {
				tt.change(&a)
			}
			checkFirst(t, Roles(a), tt.cause, tt.certainty, tt.message, tt.remedy)
		})
	}
}

// checkFirst compares the first finding with what is wanted.
func checkFirst(t *testing.T, found []cloud.Finding, cause string, certainty cloud.Certainty, message, remedy string) {
	t.Helper()
	if cause == "" {
		if len(found) > 0 {
			t.Fatalf("found %+v, want nothing", found)
		}
		return
	}
	if certainty == "" {
		certainty = cloud.Certain
	}
	if len(found) == 0 {
		t.Fatalf("found nothing, want %s", cause)
	}
	f := found[0]
	if f.Cause != cause || f.Certainty != certainty || !strings.Contains(f.Message, message) || !strings.Contains(f.Remedy, remedy) {
		t.Errorf("found %+v\nwant %s, %s, with %q and remedy %q", f, cause, certainty, message, remedy)
	}
	if certainty == cloud.Certain && f.Remedy == "" {
		t.Errorf("%s has no remedy", cause)
	}
}

// What the remedy says for aws-auth, applied, is sound.
func TestManifestMends(t *testing.T) {
	for name, m := range map[string]AuthMap{
		"absent":    {},
		"other":     authMap(goodLine(controllerRole)),
		"with path": authMap(goodLine("arn:aws:iam::111122223333:role/team/node")),
		"groups":    authMap(strings.Replace(goodLine(nodeRole), "system:nodes", "x", 1)),
	} {
		a := sound(ModeConfigMap)
		a.AuthMap = m
		found := Roles(a)
		if len(found) != 1 || found[0].Manifest == "" {
			t.Fatalf("%s: found %+v, want one with a manifest", name, found)
		}
		a.AuthMap = AuthMap{Found: true, Data: dataOf(t, found[0].Manifest)}
		if left := Roles(a); len(left) > 0 {
			t.Errorf("%s: after the manifest there is still %+v", name, left)
		}
	}
}
