package policy

import (
	"strings"
	"testing"
)

func mustParse(t *testing.T, document string) *Policy {
	t.Helper()
	p, err := Parse(document)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func statementOf(body string) string {
	return `{"Version":"2012-10-17","Statement":[{"Effect":"Allow",` + body + `}]}`
}

func TestStatements(t *testing.T) {
	const instance = "arn:aws:ec2:us-east-1:111122223333:instance/i-1"
	for _, tc := range []struct {
		name, document   string
		action, resource string
		want             Decision
	}{
		{"no statement matches", statementOf(`"Action":"ec2:RunInstances","Resource":"*"`), "ec2:TerminateInstances", instance, Unspoken},
		{"action in another case", statementOf(`"Action":"EC2:terminateinstances","Resource":"*"`), "ec2:TerminateInstances", instance, Allowed},
		{"action by wildcard", statementOf(`"Action":["sqs:*","ec2:*Instance?"],"Resource":"*"`), "ec2:TerminateInstances", instance, Allowed},
		{"wildcard of another service", statementOf(`"Action":"sqs:*","Resource":"*"`), "ec2:TerminateInstances", instance, Unspoken},
		{"all actions but some", statementOf(`"NotAction":"iam:*","Resource":"*"`), "ec2:TerminateInstances", instance, Allowed},
		{"an excepted action", statementOf(`"NotAction":"iam:*","Resource":"*"`), "iam:CreateRole", "*", Unspoken},
		{
			"resource by wildcard", statementOf(`"Action":"ec2:*","Resource":"arn:aws:ec2:*:*:instance/*"`), "ec2:TerminateInstances", instance,
			Allowed,
		},
		{
			"resource in another region", statementOf(`"Action":"ec2:*","Resource":"arn:aws:ec2:eu-west-1:*:instance/*"`),
			"ec2:TerminateInstances", instance, Unspoken,
		},
		{
			"resources in another case are others", statementOf(`"Action":"ec2:*","Resource":"arn:aws:ec2:*:*:Instance/*"`),
			"ec2:TerminateInstances", instance, Unspoken,
		},
		{
			"all resources but some", statementOf(`"Action":"ec2:*","NotResource":"arn:aws:ec2:*:*:volume/*"`), "ec2:TerminateInstances", instance,
			Allowed,
		},
		{
			"an excepted resource", statementOf(`"Action":"ec2:*","NotResource":"arn:aws:ec2:*:*:instance/*"`), "ec2:TerminateInstances", instance,
			Unspoken,
		},
		{
			"deny wins", `{"Statement":[{"Effect":"Deny","Action":"ec2:Terminate*","Resource":"*"},{"Effect":"Allow","Action":"*","Resource":"*"}]}`,
			"ec2:TerminateInstances", instance, Denied,
		},
		{
			"one statement, not a list", `{"Statement":{"Effect":"Allow","Action":"*","Resource":"*"}}`, "ec2:TerminateInstances", instance,
			Allowed,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := Decide([]*Policy{mustParse(t, tc.document)}, Request{Action: tc.action, Resource: tc.resource}); got != tc.want {
				t.Errorf("decided %d, want %d", got, tc.want)
			}
		})
	}
}

func TestPoliciesTogether(t *testing.T) {
	allow := mustParse(t, statementOf(`"Action":"*","Resource":"*"`))
	deny := mustParse(t, `{"Statement":{"Effect":"Deny","Action":"ec2:TerminateInstances","Resource":"*"}}`)
	r := Request{Action: "ec2:TerminateInstances", Resource: "*"}
	if got := Decide([]*Policy{allow, deny}, r); got != Denied {
		t.Errorf("decided %d: a Deny in another policy must win", got)
	}
	if got := Decide(nil, r); got != Unspoken {
		t.Errorf("decided %d without policies", got)
	}
}

func TestConditions(t *testing.T) {
	keys := Keys{}
	keys.Put("aws:ResourceTag/Team", "blue")
	keys.Put("aws:TagKeys", "Name", "team")
	keys.Put("aws:PrincipalArn", "arn:aws:iam::111122223333:role/a/b")
	keys.Put("ec2:IsLaunchTemplateResource", "true")
	keys.Put("sqs:Count", "5")
	for _, tc := range []struct {
		name, condition string
		want            bool
	}{
		{"equal", `"StringEquals":{"aws:ResourceTag/Team":"blue"}`, true},
		{"names of keys have no case", `"StringEquals":{"AWS:resourcetag/team":"blue"}`, true},
		{"values have", `"StringEquals":{"aws:ResourceTag/Team":"Blue"}`, false},
		{"equal in any case", `"StringEqualsIgnoreCase":{"aws:ResourceTag/Team":"Blue"}`, true},
		{"one of several values", `"StringEquals":{"aws:ResourceTag/Team":["red","blue"]}`, true},
		{"no wildcards in StringEquals", `"StringEquals":{"aws:ResourceTag/Team":"bl*"}`, false},
		{"like", `"StringLike":{"aws:ResourceTag/Team":"b?u*"}`, true},
		{"absent key", `"StringEquals":{"aws:ResourceTag/none":"blue"}`, false},
		{"absent key, like anything", `"StringLike":{"aws:ResourceTag/none":"*"}`, false},
		{"absent key, if exists", `"StringEqualsIfExists":{"aws:ResourceTag/none":"blue"}`, true},
		{"present key, if exists", `"StringEqualsIfExists":{"aws:ResourceTag/Team":"red"}`, false},
		{"not equal", `"StringNotEquals":{"aws:ResourceTag/Team":"red"}`, true},
		{"not equal to any", `"StringNotEquals":{"aws:ResourceTag/Team":["red","blue"]}`, false},
		{"absent key is not equal", `"StringNotEquals":{"aws:ResourceTag/none":"red"}`, true},
		{"not like", `"StringNotLike":{"aws:ResourceTag/Team":"b*"}`, false},
		{"null of what is there", `"Null":{"aws:ResourceTag/Team":"true"}`, false},
		{"not null of what is there", `"Null":{"aws:ResourceTag/Team":"false"}`, true},
		{"null of what is absent", `"Null":{"aws:ResourceTag/none":"true"}`, true},
		{"every value is listed", `"ForAllValues:StringEquals":{"aws:TagKeys":["Name","team","more"]}`, true},
		{"one value is not listed", `"ForAllValues:StringEquals":{"aws:TagKeys":["Name"]}`, false},
		{"every value of none", `"ForAllValues:StringEquals":{"aws:ResourceTag/none":"x"}`, true},
		{"any value is listed", `"ForAnyValue:StringEquals":{"aws:TagKeys":["team"]}`, true},
		{"no value is listed", `"ForAnyValue:StringEquals":{"aws:TagKeys":["x"]}`, false},
		{"any value of none", `"ForAnyValue:StringLike":{"aws:ResourceTag/none":"*"}`, false},
		{"every value differs", `"ForAllValues:StringNotEquals":{"aws:TagKeys":["x"]}`, true},
		{"not every value differs", `"ForAllValues:StringNotEquals":{"aws:TagKeys":["team"]}`, false},
		{"ARN", `"ArnLike":{"aws:PrincipalArn":"arn:aws:iam::*:role/a/*"}`, true},
		{"star of an ARN stops at colons", `"ArnLike":{"aws:PrincipalArn":"arn:*:role/a/b"}`, false},
		{"ARN by StringLike does not stop", `"StringLike":{"aws:PrincipalArn":"arn:*:role/a/b"}`, true},
		{"another ARN", `"ArnNotEquals":{"aws:PrincipalArn":"arn:aws:iam::111122223333:role/a/b"}`, false},
		{"bool", `"Bool":{"ec2:IsLaunchTemplateResource":true}`, true},
		{"other bool", `"Bool":{"ec2:IsLaunchTemplateResource":"false"}`, false},
		{"number", `"NumericLessThanEquals":{"sqs:Count":5}`, true},
		{"larger number", `"NumericGreaterThan":{"sqs:Count":"5"}`, false},
		{"all of several tests", `"StringEquals":{"aws:ResourceTag/Team":"blue"},"Null":{"aws:ResourceTag/none":"false"}`, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := mustParse(t, statementOf(`"Action":"*","Resource":"*","Condition":{`+tc.condition+`}`))
			if got := Decide([]*Policy{p}, Request{Action: "ec2:X", Resource: "*", Keys: keys}) == Allowed; got != tc.want {
				t.Errorf("holds: %v, want %v", got, tc.want)
			}
		})
	}
}

func TestMalformed(t *testing.T) {
	for _, tc := range []struct{ name, document, says string }{
		{"no JSON", `{`, "EOF"},
		{"no statement", `{"Version":"2012-10-17","Statement":[]}`, "needs a statement"},
		{"version", `{"Version":"2020-01-01","Statement":{"Effect":"Allow","Action":"*","Resource":"*"}}`, "version"},
		{"effect", `{"Statement":{"Effect":"allow","Action":"*","Resource":"*"}}`, "neither Allow nor Deny"},
		{"misspelt element", `{"Statement":{"Effect":"Allow","Actions":"*","Resource":"*"}}`, "unknown field"},
		{"no action", `{"Statement":{"Effect":"Allow","Resource":"*"}}`, "Action or NotAction"},
		{"both resources", `{"Statement":{"Effect":"Allow","Action":"*","Resource":"*","NotResource":"*"}}`, "Resource or NotResource"},
		{"principal", `{"Statement":{"Effect":"Allow","Principal":"*","Action":"*","Resource":"*"}}`, "principal"},
		{"action without service", statementOf(`"Action":"RunInstances","Resource":"*"`), "prefaced by a vendor"},
		{"resource that is no ARN", statementOf(`"Action":"*","Resource":"i-1"`), "ARN format"},
		{"operator", statementOf(`"Action":"*","Resource":"*","Condition":{"StringSame":{"a":"b"}}`), "invalid condition type: StringSame"},
		{"unsupported operator", statementOf(`"Action":"*","Resource":"*","Condition":{"IpAddress":{"aws:SourceIp":"10.0.0.0/8"}}`), "IpAddress"},
		{"null that is neither", statementOf(`"Action":"*","Resource":"*","Condition":{"Null":{"a":"maybe"}}`), "true or false"},
		{"variable", statementOf(`"Action":"*","Resource":"arn:aws:iam::1:role/${aws:username}"`), "policy variables"},
		{
			"two statements of one ID",
			`{"Statement":[{"Sid":"A","Effect":"Allow","Action":"*","Resource":"*"},{"Sid":"A","Effect":"Deny","Action":"*","Resource":"*"}]}`,
			"must be unique: A",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := Parse(tc.document); err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, want %q", err, tc.says)
			}
		})
	}
}

func FuzzLike(f *testing.F) {
	f.Add("a*b?c", "axxbyc")
	f.Fuzz(func(t *testing.T, pattern, value string) {
		if len(pattern) > 12 || len(value) > 12 {
			return
		}
		if got, want := Like(pattern, value), slowLike(pattern, value); got != want {
			t.Errorf("Like(%q, %q) = %v, want %v", pattern, value, got, want)
		}
	})
}

// slowLike is Like by its definition.
func slowLike(pattern, value string) bool {
	switch {
	case pattern == "":
		return value == ""
	case pattern[0] == '*':
		return slowLike(pattern[1:], value) || value != "" && slowLike(pattern, value[1:])
	case value == "":
		return false
	}
	return (pattern[0] == '?' || pattern[0] == value[0]) && slowLike(pattern[1:], value[1:])
}
