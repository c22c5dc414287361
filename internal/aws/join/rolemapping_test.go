package join

import (
	"strings"
	"testing"

	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

const (
	nodeRole       = "arn:aws:iam::111122223333:role/node"
	pathRole       = "arn:aws:iam::111122223333:role/team/a/node"
	controllerRole = "arn:aws:iam::111122223333:role/controller"
)

// validEntry is the entry of mapRoles that lets nodes join.
func validEntry(arn string) string {
	return "- rolearn: " + arn + "\n  username: system:node:{{EC2PrivateDNSName}}\n  groups:\n  - system:bootstrappers\n  - system:nodes\n"
}

func awsAuth(roles string) AWSAuth {
	return AWSAuth{Found: true, Data: map[string]string{"mapRoles": roles}}
}

func entries(pairs ...string) (out []Entry) {
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, Entry{PrincipalARN: pairs[i], Type: pairs[i+1]})
	}
	return out
}

// validAccess is a class with a correct profile, in a cluster of that mode that maps nothing.
func validAccess(mode Mode) Access {
	return Access{
		Cluster: Cluster{Name: "shop", Region: "eu-west-1"}, Mode: mode, Role: "node", Account: "111122223333",
		Profile: Profile{Name: "p", Found: true, Roles: []string{nodeRole}}, ControllerRoles: []string{controllerRole},
	}
}

func TestCheckRole(t *testing.T) {
	const createEntry = "aws eks create-access-entry --cluster-name shop --principal-arn " + nodeRole + " --region eu-west-1 --type EC2_LINUX"
	tests := []struct {
		name   string
		mode   Mode
		change func(*Access)
		// cause of the first finding, empty for none at all; certainty "" stands for certain.
		cause     string
		certainty cloudprovider.Certainty
		// message and remedy contain these.
		message, remedy string
	}{
		{name: "access entry, mode API", mode: ModeAPI, change: func(a *Access) { a.Entries = entries(nodeRole, "EC2_LINUX") }},
		{
			name:   "access entry, mode API_AND_CONFIG_MAP",
			mode:   ModeAPIAndConfigMap,
			change: func(a *Access) { a.Entries = entries(nodeRole, "EC2_LINUX") },
		},
		{
			name:   "aws-auth, mode API_AND_CONFIG_MAP",
			mode:   ModeAPIAndConfigMap,
			change: func(a *Access) { a.AWSAuth = awsAuth(validEntry(nodeRole)) },
		},
		{name: "aws-auth, mode CONFIG_MAP", mode: ModeConfigMap, change: func(a *Access) { a.AWSAuth = awsAuth(validEntry(nodeRole)) }},
		{
			name:   "aws-auth, case of the ARN",
			mode:   ModeConfigMap,
			change: func(a *Access) { a.AWSAuth = awsAuth(validEntry(strings.ToUpper(nodeRole[:3]) + nodeRole[3:])) },
		},
		{name: "role with a path, in aws-auth without", mode: ModeConfigMap, change: func(a *Access) {
			a.Role, a.Profile.Roles, a.AWSAuth = "team/a/node", []string{pathRole}, awsAuth(validEntry(nodeRole))
		}},
		{name: "role with a path, in an access entry with it", mode: ModeAPI, change: func(a *Access) {
			a.Profile.Roles, a.Entries = []string{pathRole}, entries(pathRole, "EC2_LINUX")
		}},
		{name: "a right entry wins over a wrong aws-auth", mode: ModeAPIAndConfigMap, change: func(a *Access) {
			a.Entries, a.AWSAuth = entries(nodeRole, "EC2_LINUX"), awsAuth("- nonsense: [")
		}},

		{
			name:    "in neither place",
			mode:    ModeAPIAndConfigMap,
			cause:   NodeRoleNotMapped,
			message: "access entries of cluster shop or ConfigMap kube-system/aws-auth",
			remedy:  createEntry,
		},
		{name: "no access entry", mode: ModeAPI, cause: NodeRoleNotMapped, message: nodeRole, remedy: createEntry},
		{
			name:    "no ConfigMap aws-auth",
			mode:    ModeConfigMap,
			cause:   NodeRoleNotMapped,
			message: "ConfigMap kube-system/aws-auth",
			remedy:  "- system:bootstrappers",
		},
		{
			name:   "aws-auth with others only",
			mode:   ModeConfigMap,
			change: func(a *Access) { a.AWSAuth = awsAuth(validEntry("arn:aws:iam::111122223333:role/other")) },
			cause:  NodeRoleNotMapped,
		},
		{
			name:    "class with a profile of its own",
			mode:    ModeAPI,
			change:  func(a *Access) { a.Role = "" },
			cause:   NodeRoleNotMapped,
			message: nodeRole,
		},

		{
			name:    "controller's role in an access entry",
			mode:    ModeAPI,
			change:  func(a *Access) { a.Entries = entries(controllerRole, "EC2_LINUX") },
			cause:   ControllerRoleMapped,
			message: controllerRole,
			remedy:  createEntry,
		},
		{
			name:    "controller's role in aws-auth",
			mode:    ModeConfigMap,
			change:  func(a *Access) { a.AWSAuth = awsAuth(validEntry(controllerRole)) },
			cause:   ControllerRoleMapped,
			message: "aws-auth",
			remedy:  "rolearn: " + nodeRole,
		},
		{
			name:   "controller's role mapped as an administrator",
			mode:   ModeAPI,
			change: func(a *Access) { a.Entries = entries(controllerRole, "STANDARD") },
			cause:  NodeRoleNotMapped,
		},
		{
			name:   "controller and nodes both mapped",
			mode:   ModeAPI,
			change: func(a *Access) { a.Entries = entries(controllerRole, "EC2_LINUX", nodeRole, "EC2_LINUX") },
		},

		{
			name:    "entry of type STANDARD",
			mode:    ModeAPI,
			change:  func(a *Access) { a.Entries = entries(nodeRole, "STANDARD") },
			cause:   AccessEntryWrongType,
			message: "STANDARD",
			remedy:  "aws eks delete-access-entry --cluster-name shop --principal-arn " + nodeRole + " --region eu-west-1 && " + createEntry,
		},
		{
			name:   "entry of type FARGATE_LINUX",
			mode:   ModeAPI,
			change: func(a *Access) { a.Entries = entries(nodeRole, "FARGATE_LINUX") },
			cause:  AccessEntryWrongType,
		},
		{
			name:   "entry of type HYBRID_LINUX",
			mode:   ModeAPI,
			change: func(a *Access) { a.Entries = entries(nodeRole, "HYBRID_LINUX") },
			cause:  AccessEntryWrongType,
		},
		{
			name:      "entry of type EC2, of Auto Mode",
			mode:      ModeAPI,
			change:    func(a *Access) { a.Entries = entries(nodeRole, "EC2") },
			cause:     AccessEntryWrongType,
			certainty: cloudprovider.Likely,
		},
		{name: "a wrong entry wins over a right aws-auth", mode: ModeAPIAndConfigMap, change: func(a *Access) {
			a.Entries, a.AWSAuth = entries(nodeRole, "STANDARD"), awsAuth(validEntry(nodeRole))
		}, cause: AccessEntryWrongType},
		{
			name:      "Windows, entry for Linux",
			mode:      ModeAPI,
			change:    func(a *Access) { a.Windows, a.Entries = true, entries(nodeRole, "EC2_LINUX") },
			cause:     WindowsKubeProxyDenied,
			certainty: cloudprovider.Likely,
			remedy:    "--type EC2_WINDOWS",
		},
		{
			name:   "Windows, entry for Windows",
			mode:   ModeAPI,
			change: func(a *Access) { a.Windows, a.Entries = true, entries(nodeRole, "EC2_WINDOWS") },
		},
		{
			name:   "Windows, in neither place",
			mode:   ModeAPI,
			change: func(a *Access) { a.Windows = true },
			cause:  NodeRoleNotMapped,
			remedy: "--type EC2_WINDOWS",
		},
		{
			name:      "Windows, aws-auth for Linux",
			mode:      ModeConfigMap,
			change:    func(a *Access) { a.Windows, a.AWSAuth = true, awsAuth(validEntry(nodeRole)) },
			cause:     WindowsKubeProxyDenied,
			certainty: cloudprovider.Likely,
			remedy:    "- eks:kube-proxy-windows",
		},
		{name: "Windows, aws-auth lets nobody in", mode: ModeConfigMap, change: func(a *Access) {
			a.Windows, a.AWSAuth = true, awsAuth(strings.Replace(validEntry(nodeRole), "system:nodes", "x", 1))
		}, cause: AuthMapMalformed},
		{name: "Linux, entry for Windows", mode: ModeAPI, change: func(a *Access) { a.Entries = entries(nodeRole, "EC2_WINDOWS") }},

		{
			name:    "mode ignores aws-auth",
			mode:    ModeAPI,
			change:  func(a *Access) { a.AWSAuth = awsAuth(validEntry(nodeRole)) },
			cause:   AuthModeIgnoresMapping,
			message: "authentication mode is API",
			remedy:  createEntry,
		},

		{
			name:    "aws-auth: no YAML",
			mode:    ModeConfigMap,
			change:  func(a *Access) { a.AWSAuth = awsAuth("- rolearn: [") },
			cause:   AuthMapMalformed,
			message: "cannot be parsed",
			remedy:  nodeRole,
		},
		{
			name:   "aws-auth: not a list",
			mode:   ModeConfigMap,
			change: func(a *Access) { a.AWSAuth = awsAuth("rolearn: x") },
			cause:  AuthMapMalformed,
		},
		{name: "aws-auth: ARN with its path", mode: ModeConfigMap, change: func(a *Access) {
			a.Profile.Roles, a.AWSAuth = []string{pathRole}, awsAuth(validEntry(pathRole))
		}, cause: AuthMapMalformed, message: "with its path", remedy: "rolearn: " + nodeRole},
		{name: "aws-auth: no group of nodes", mode: ModeConfigMap, change: func(a *Access) {
			a.AWSAuth = awsAuth(strings.Replace(validEntry(nodeRole), "- system:nodes", "- system:masters", 1))
		}, cause: AuthMapMalformed, message: "lacks the groups system:nodes"},
		{name: "aws-auth: no group of bootstrappers", mode: ModeConfigMap, change: func(a *Access) {
			a.AWSAuth = awsAuth(strings.Replace(validEntry(nodeRole), "  - system:bootstrappers\n", "", 1))
		}, cause: AuthMapMalformed, certainty: cloudprovider.Likely, message: "lacks the groups system:bootstrappers"},
		{name: "aws-auth: username of a person", mode: ModeConfigMap, change: func(a *Access) {
			a.AWSAuth = awsAuth(strings.Replace(validEntry(nodeRole), "system:node:{{EC2PrivateDNSName}}", "nodes", 1))
		}, cause: AuthMapMalformed, message: `username "nodes"`},
		{name: "aws-auth: under mapUsers", mode: ModeConfigMap, change: func(a *Access) {
			a.AWSAuth = AWSAuth{Found: true, Data: map[string]string{"mapUsers": "- userarn: " + nodeRole + "\n  username: x\n"}}
		}, cause: AuthMapMalformed, message: "mapUsers"},

		{
			name:    "role of another account",
			mode:    ModeAPI,
			change:  func(a *Access) { a.Entries = entries("arn:aws:iam::999999999999:role/node", "EC2_LINUX") },
			cause:   NodeRoleOfOtherAccount,
			message: "999999999999",
		},

		{
			name: "profile holds another role", mode: ModeAPI, change: func(a *Access) {
				a.Profile.Roles, a.Entries = []string{controllerRole}, entries(nodeRole, "EC2_LINUX", controllerRole, "EC2_LINUX")
			}, cause: InstanceProfileWrongRole, message: "has role controller, but the node class specifies node",
			remedy: "--role-name controller && aws iam add-role-to-instance-profile --instance-profile-name p --role-name node",
		},
		{
			name:    "profile holds no role",
			mode:    ModeAPI,
			change:  func(a *Access) { a.Profile.Roles = nil },
			cause:   InstanceProfileWrongRole,
			message: "has no role",
		},
		{
			name:   "no such profile",
			mode:   ModeAPI,
			change: func(a *Access) { a.Role, a.Profile = "", Profile{Name: "p"} },
			cause:  InstanceProfileNotFound,
		},

		{
			name:      "EKS denies access",
			mode:      "",
			change:    func(a *Access) { a.ModeErr = "AccessDenied" },
			cause:     RoleMappingUnchecked,
			certainty: cloudprovider.Unchecked,
			message:   "AccessDenied",
		},
		{
			name:      "entries may not be listed",
			mode:      ModeAPI,
			change:    func(a *Access) { a.EntriesErr = "AccessDenied" },
			cause:     RoleMappingUnchecked,
			certainty: cloudprovider.Unchecked,
		},
		{name: "entries may not be listed, aws-auth is right", mode: ModeAPIAndConfigMap, change: func(a *Access) {
			a.EntriesErr, a.AWSAuth = "AccessDenied", awsAuth(validEntry(nodeRole))
		}},
		{name: "entries may not be listed, aws-auth is wrong", mode: ModeAPIAndConfigMap, change: func(a *Access) {
			a.EntriesErr, a.AWSAuth = "AccessDenied", awsAuth(strings.Replace(validEntry(nodeRole), "EC2PrivateDNSName", "AccountID", 1))
		}, cause: AuthMapMalformed, certainty: cloudprovider.Likely},
		{
			name:      "aws-auth may not be read",
			mode:      ModeConfigMap,
			change:    func(a *Access) { a.AWSAuthErr = "forbidden" },
			cause:     RoleMappingUnchecked,
			certainty: cloudprovider.Unchecked,
			message:   "aws-auth could not be checked: forbidden",
		},
		{name: "profile may not be read, role is mapped", mode: ModeAPI, change: func(a *Access) {
			a.Profile.Roles, a.ProfileErr, a.Entries = nil, "AccessDenied", entries(nodeRole, "EC2_LINUX")
		}, cause: RoleMappingUnchecked, certainty: cloudprovider.Unchecked},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := validAccess(tt.mode)
			if tt.change != nil {
				tt.change(&a)
			}
			checkFirst(t, CheckRole(a), tt.cause, tt.certainty, tt.message, tt.remedy)
		})
	}
}

// If IAM cannot be read, as in an isolated VPC, the ARN of the role is constructed. That finds the role's mapping in
// every partition, whatever path either of them has.
func TestNodesOfOtherPartitionsAreMappedWithoutIAM(t *testing.T) {
	for region, part := range map[string]string{"us-gov-west-1": "aws-us-gov", "cn-north-1": "aws-cn", "us-iso-east-1": "aws-iso", "eu-west-1": "aws"} {
		mapped := "arn:" + part + ":iam::111122223333:role/node"
		blind := validAccess(ModeAPI)
		blind.Cluster.Region, blind.Profile, blind.ProfileErr = region, Profile{Name: "p"}, "IAM cannot be reached from an isolated VPC"
		for name, change := range map[string]func(*Access){
			"access entry": func(a *Access) { a.Entries = entries(mapped, "EC2_LINUX") },
			"access entry with a path": func(a *Access) {
				a.Entries = entries(strings.Replace(mapped, "role/", "role/team/a/", 1),
					"EC2_LINUX")
			},
			"class with a path, entry without": func(a *Access) { a.Role, a.Entries = "team/a/node", entries(mapped, "EC2_LINUX") },
			"aws-auth":                         func(a *Access) { a.Mode, a.AWSAuth = ModeConfigMap, awsAuth(validEntry(mapped)) },
			"partition of the controller's identity": func(a *Access) {
				a.Cluster.Region, a.Partition, a.Entries = "xx-new-1", part, entries(mapped, "EC2_LINUX")
			},
		} {
			a := blind
			change(&a)
			for _, f := range CheckRole(a) {
				if f.Certainty != cloudprovider.Unchecked {
					t.Errorf("%s, %s: found %+v, but the role is mapped", region, name, f)
				}
			}
		}
		found := CheckRole(blind)
		if want := "--principal-arn " + mapped + " "; found[len(found)-1].Cause != NodeRoleNotMapped ||
			!strings.Contains(found[len(found)-1].Remedy, want) {
			t.Errorf("%s: a role that is not mapped gives %+v, want %s with %q", region, found, NodeRoleNotMapped, want)
		}
	}
}

// aws-auth compares whole ARNs, so an entry of another partition lets no node join; only IAM shows for certain which
// partition is right.
func TestAWSAuthEntryOfAnotherPartitionIsReported(t *testing.T) {
	gov := "arn:aws-us-gov:iam::111122223333:role/node"
	a := validAccess(ModeConfigMap)
	a.Cluster.Region, a.AWSAuth = "us-gov-west-1", awsAuth(validEntry(nodeRole))
	a.Profile.Roles = []string{gov}
	checkFirst(
		t,
		CheckRole(a),
		AuthMapMalformed,
		cloudprovider.Certain,
		"is written with partition aws; the node role is "+gov,
		"rolearn: "+gov,
	)
	a.Profile.Roles, a.RoleARN = nil, ""
	a.ProfileErr = "AccessDenied"
	if found := CheckRole(a); found[1].Cause != AuthMapMalformed || found[1].Certainty != cloudprovider.Likely {
		t.Errorf("without IAM: found %+v", found)
	}
}

// A user with the name of the role is another principal.
func TestUserWithTheNameOfTheRoleIsNotTheRole(t *testing.T) {
	a := validAccess(ModeAPI)
	a.Entries = entries("arn:aws:iam::111122223333:user/node", "STANDARD")
	checkFirst(t, CheckRole(a), NodeRoleNotMapped, cloudprovider.Certain, nodeRole, "")
}

// Windows nodes join with the access entry of Linux nodes, so nothing blocks their launch. The finding names what does
// not work on them, and its remedy keeps the entry that running nodes need.
func TestWindowsNodesJoinWithTheEntryOfLinuxNodes(t *testing.T) {
	a := validAccess(ModeAPI)
	a.Profile.Roles[0] = pathRole
	a.Windows, a.Entries, a.Running = true, entries(pathRole, "EC2_LINUX"), Running{Linux: 7, Windows: 2}
	found := CheckRole(a)
	if len(found) != 1 || found[0].Cause != WindowsKubeProxyDenied || !found[0].NodeJoins {
		t.Fatalf("found %+v", found)
	}
	if f, ok := cloudprovider.First(found); ok {
		t.Errorf("nodes do not join: %+v", f)
	}
	f := found[0]
	for _, want := range []string{"Windows nodes join (2 run)", "neither Services nor DNS", "eks:kube-proxy-windows"} {
		if !strings.Contains(f.Message, want) {
			t.Errorf("the message lacks %q: %s", want, f.Message)
		}
	}
	for _, want := range []string{
		"deleting it would cut off 7 running Linux nodes", "spec.role",
		"aws eks create-access-entry --cluster-name shop --principal-arn arn:aws:iam::111122223333:role/NEW_ROLE --region eu-west-1 --type EC2_WINDOWS",
	} {
		if !strings.Contains(f.Remedy, want) {
			t.Errorf("the remedy lacks %q: %s", want, f.Remedy)
		}
	}
	for what, change := range map[string]func(*Access){"one node": func(a *Access) { a.Running.Linux = 1 }, "nodes not known": func(a *Access) { a.RunningErr = "forbidden" }} {
		b := a
		change(&b)
		if f := CheckRole(b)[0]; !strings.Contains(f.Remedy, "would cut off 1 running Linux node") &&
			!strings.Contains(f.Remedy, "would cut off every running Linux node") {
			t.Errorf("%s: %s", what, f.Remedy)
		}
	}
}

// No remedy deletes an access entry that running nodes may use.
func TestNoRemedyCutsOffRunningNodes(t *testing.T) {
	for _, windows := range []bool{false, true} {
		for _, kind := range []string{"EC2", "EC2_LINUX", "EC2_WINDOWS", "FARGATE_LINUX", "HYBRID_LINUX", "HYPERPOD_LINUX"} {
			a := validAccess(ModeAPI)
			a.Windows, a.Entries = windows, entries(nodeRole, kind)
			for _, f := range CheckRole(a) {
				if strings.Contains(f.Remedy, "delete-access-entry") || !strings.Contains(f.Remedy, "NEW_ROLE") {
					t.Errorf("windows %v, %s: %s", windows, kind, f.Remedy)
				}
			}
		}
	}
}

// An entry of aws-auth keeps its groups, because nodes of the other operating system may use them.
func TestRemedyKeepsTheGroupsOfOtherNodes(t *testing.T) {
	windowsOnly := strings.Replace(validEntry(nodeRole), "  - system:bootstrappers\n", "  - eks:kube-proxy-windows\n", 1)
	for name, a := range map[string]Access{"Linux class": validAccess(ModeConfigMap), "Windows class": validAccess(ModeConfigMap)} {
		a.Windows = name == "Windows class"
		a.AWSAuth = awsAuth(windowsOnly)
		found := CheckRole(a)
		if len(found) != 1 || found[0].Manifest == "" {
			t.Fatalf("%s: found %+v", name, found)
		}
		m := AWSAuth{Found: true, Data: dataOf(t, found[0].Manifest)}
		for _, windows := range []bool{false, true} {
			a.Windows, a.AWSAuth = windows, m
			if left := CheckRole(a); len(left) > 0 {
				t.Errorf("%s: after the remedy, for windows=%v there is %+v", name, windows, left)
			}
		}
	}
}

// Of several entries for a role the authenticator uses the last.
func TestLastEntryOfARoleWins(t *testing.T) {
	a := validAccess(ModeConfigMap)
	a.Windows = true
	a.AWSAuth = awsAuth(
		validEntry(nodeRole) + strings.Replace(validEntry(nodeRole), "  groups:\n", "  groups:\n  - eks:kube-proxy-windows\n", 1),
	)
	if found := CheckRole(a); len(found) > 0 {
		t.Errorf("found %+v", found)
	}
}

// checkFirst compares the first finding with the wanted one.
func checkFirst(t *testing.T, found []cloudprovider.Finding, cause string, certainty cloudprovider.Certainty, message, remedy string) {
	t.Helper()
	if cause == "" {
		if len(found) > 0 {
			t.Fatalf("found %+v, want nothing", found)
		}
		return
	}
	if certainty == "" {
		certainty = cloudprovider.Certain
	}
	if len(found) == 0 {
		t.Fatalf("found nothing, want %s", cause)
	}
	f := found[0]
	if f.Cause != cause || f.Certainty != certainty || !strings.Contains(f.Message, message) || !strings.Contains(f.Remedy, remedy) {
		t.Errorf("found %+v\nwant %s, %s, with %q and remedy %q", f, cause, certainty, message, remedy)
	}
	if certainty == cloudprovider.Certain && f.Remedy == "" {
		t.Errorf("%s has no remedy", cause)
	}
}

// The remedy for aws-auth, applied, fixes the finding.
func TestManifestFixesTheFinding(t *testing.T) {
	for name, m := range map[string]AWSAuth{
		"absent":    {},
		"other":     awsAuth(validEntry(controllerRole)),
		"with path": awsAuth(validEntry("arn:aws:iam::111122223333:role/team/node")),
		"groups":    awsAuth(strings.Replace(validEntry(nodeRole), "system:nodes", "x", 1)),
	} {
		a := validAccess(ModeConfigMap)
		a.AWSAuth = m
		found := CheckRole(a)
		if len(found) != 1 || found[0].Manifest == "" {
			t.Fatalf("%s: found %+v, want one with a manifest", name, found)
		}
		a.AWSAuth = AWSAuth{Found: true, Data: dataOf(t, found[0].Manifest)}
		if left := CheckRole(a); len(left) > 0 {
			t.Errorf("%s: after the manifest there is still %+v", name, left)
		}
	}
}
