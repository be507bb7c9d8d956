//! The PMI client against process managers that say what a script says.

use super::*;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;

/// Runs `client` against a manager that expects each question in turn and gives its answer; an empty answer hangs up. After
/// the script the manager waits for the client's end.
fn against<T>(script: &[(&str, &str)], version: Version, client: impl FnOnce(OwnedFd) -> T) -> T {
    let (ours, theirs) = UnixStream::pair().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut output = theirs.try_clone().unwrap();
            let mut input = BufReader::new(theirs);
            let mut framed = false;
            for (question, answer) in script {
                let asked = if framed {
                    let mut head = [0; 6];
                    input.read_exact(&mut head).unwrap();
                    let mut text = vec![0; std::str::from_utf8(&head).unwrap().trim().parse().unwrap()];
                    input.read_exact(&mut text).unwrap();
                    String::from_utf8(text).unwrap()
                } else {
                    let mut line = String::new();
                    input.read_line(&mut line).unwrap();
                    line.trim_end().to_owned()
                };
                assert_eq!(asked, *question);
                if answer.is_empty() {
                    return;
                }
                let text = if framed { format!("{:<6}{answer}", answer.len()) } else { format!("{answer}\n") };
                // In two parts: a message need not come at once.
                let (first, second) = text.split_at(text.len() / 2);
                // A client that has read enough hangs up.
                if output.write_all(first.as_bytes()).and_then(|()| output.write_all(second.as_bytes())).is_err() {
                    return;
                }
                framed = version == Version::Two;
            }
            let _ = input.read(&mut [0]);
        });
        client(ours.into())
    })
}

const GREETING_1: [(&str, &str); 6] = [
    ("cmd=init pmi_version=1 pmi_subversion=1", "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=2"),
    ("cmd=get_maxes", "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=80"),
    ("cmd=get_my_kvsname", "cmd=my_kvsname rc=0 kvsname=kvs_1"),
    ("cmd=get_appnum", "cmd=appnum rc=0 appnum=3"),
    ("cmd=get_universe_size", "cmd=universe_size rc=0 size=-1"),
    ("cmd=get kvsname=kvs_1 key=PMI_process_mapping", "value=(vector,(0,2,2)) cmd=get_result rc=0"),
];

fn hello_1(script: &[(&str, &str)], place: Option<(u32, u32)>) -> Result<Job, Error> {
    against(script, Version::One, |socket| Pmi::hello(socket, Version::One, None, place).map(|(_, job)| job))
}

#[test]
fn pmi_1_is_spoken_line_by_line() {
    let long: Vec<u8> = (0..100).collect();
    let digits: String = long.iter().map(|byte| format!("{byte:02x}")).collect();
    let puts: Vec<(String, String)> = [format!("m{}", &digits[..78]), format!("m{}", &digits[78..156]), format!("e{}", &digits[156..])]
        .iter()
        .enumerate()
        .map(|(piece, text)| (format!("cmd=put kvsname=kvs_1 key=whimbrel-card-1-{piece} value={text}"), text.clone()))
        .collect();
    let gets: Vec<(String, String)> = puts
        .iter()
        .enumerate()
        .map(|(piece, (_, text))| (format!("cmd=get kvsname=kvs_1 key=whimbrel-card-3-{piece}"), format!("cmd=get_result rc=0 value={text}")))
        .collect();
    let mut script = GREETING_1.to_vec();
    script.extend(puts.iter().map(|(question, _)| (question.as_str(), "cmd=put_result rc=0")));
    script.push(("cmd=barrier_in", "cmd=barrier_out tag=0"));
    script.extend(gets.iter().map(|(question, answer)| (question.as_str(), answer.as_str())));
    script.push(("cmd=get kvsname=kvs_1 key=whimbrel-none-2-0", "cmd=get_result rc=1"));
    script.push(("cmd=get kvsname=kvs_1 key=whimbrel-empty-2-0", "cmd=get_result rc=0 value=e"));
    script.push(("cmd=finalize", "cmd=finalize_ack rc=0"));
    script.push(("cmd=abort exitcode=7", ""));
    against(&script, Version::One, |socket| {
        let (mut pmi, job) = Pmi::hello(socket, Version::One, None, Some((1, 4))).unwrap();
        assert_eq!(job, Job { rank: 1, size: 4, appnum: 3, universe_size: 0, local_ranks: Some(vec![0, 1]) });
        pmi.put("card", &long).unwrap();
        pmi.fence(None).unwrap();
        assert_eq!(pmi.get(3, "card", ANSWER_WITHIN), Ok(Some(long)));
        assert_eq!(pmi.get(2, "none", ANSWER_WITHIN), Ok(None));
        assert_eq!(pmi.get(2, "empty", ANSWER_WITHIN), Ok(Some(Vec::new())));
        pmi.finalize().unwrap();
        pmi.abort(7, "no more");
    });
}

#[test]
fn pmi_2_is_spoken_with_lengths() {
    let script = [
        ("cmd=init pmi_version=2 pmi_subversion=0", "cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0"),
        ("cmd=fullinit;pmijobid=7.0;pmirank=1;threaded=FALSE;", "cmd=fullinit-response;rc=0;rank=1;size=2;appnum=-1;pmiverbose=0;"),
        ("cmd=info-getjobattr;key=universeSize;", "cmd=info-getjobattr-response;rc=0;found=TRUE;value=8;"),
        ("cmd=info-getjobattr;key=PMI_process_mapping;", "cmd=info-getjobattr-response;rc=1;"),
        ("cmd=kvs-put;key=whimbrel-key-1-0;value=e00ff;", "cmd=kvs-put-response;rc=0;"),
        ("cmd=kvs-fence;", "cmd=kvs-fence-response;rc=0;"),
        ("cmd=kvs-get;jobid=;srcid=-1;key=whimbrel-key-0-0;", "cmd=kvs-get-response;rc=0;found=TRUE;value=e00ff;"),
        ("cmd=kvs-get;jobid=;srcid=-1;key=whimbrel-no-0-0;", "cmd=kvs-get-response;rc=0;found=FALSE;"),
        ("cmd=finalize;", "cmd=finalize-response;rc=0;"),
        ("cmd=abort;isworld=TRUE;msg=a_b_c_d;", ""),
    ];
    against(&script, Version::Two, |socket| {
        let (mut pmi, job) = Pmi::hello(socket, Version::Two, Some("7.0"), Some((1, 2))).unwrap();
        assert_eq!(job, Job { rank: 1, size: 2, appnum: -1, universe_size: 8, local_ranks: None });
        pmi.put("key", &[0, 255]).unwrap();
        pmi.fence(None).unwrap();
        assert_eq!(pmi.get(0, "key", ANSWER_WITHIN), Ok(Some(vec![0, 255])));
        assert_eq!(pmi.get(0, "no", ANSWER_WITHIN), Ok(None));
        pmi.finalize().unwrap();
        pmi.abort(1, "a b;c=d");
    });
}

#[test]
fn a_port_tells_rank_and_size_first() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let manager = std::thread::spawn(move || {
        let mut output = theirs.try_clone().unwrap();
        let mut lines = BufReader::new(theirs).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "cmd=initack pmiid=1");
        output.write_all(b"cmd=initack rc=0\ncmd=set size=4\ncmd=set rank=1\ncmd=set debug=0\n").unwrap();
        for (question, answer) in GREETING_1 {
            assert_eq!(lines.next().unwrap().unwrap(), question);
            output.write_all(format!("{answer}\n").as_bytes()).unwrap();
        }
    });
    let (_, job) = Pmi::hello_to_port(ours.into(), "1").unwrap();
    assert_eq!((job.rank, job.size), (1, 4));
    manager.join().unwrap();
}

#[test]
fn what_a_manager_must_not_say_is_one_line() {
    let long = format!("cmd=response_to_init rc=0 pmi_version=1 x={}", "x".repeat(crate::fields::MESSAGE_BYTES_MAX));
    for (at, answer, words) in [
        (0, "", "the process manager has ended"),
        (0, "cmd=response_to_init rc=-1 msg=no_more_ranks", "no_more_ranks"),
        (0, "cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0", "speaks PMI 2"),
        (0, "cmd=maxes rc=0", "\"maxes\" where \"response_to_init\" was due"),
        (0, "hello", "a field without a name"),
        (0, "rc=0", "without a command"),
        (0, long.as_str(), "too long"),
        (1, "cmd=maxes rc=0 keylen_max=64 vallen_max=64", "takes no values"),
        (1, "cmd=maxes rc=0 keylen_max=32 vallen_max=1024", "takes no values"),
        (1, "cmd=maxes rc=0", "takes no values"),
    ] {
        let mut script = GREETING_1[..=at].to_vec();
        script[at].1 = answer;
        let error = hello_1(&script, Some((1, 4))).expect_err(words).to_string();
        assert!(error.contains(words) && !error.contains('\n'), "{error}");
    }
    let mut odd = GREETING_1;
    odd[5].1 = "cmd=get_result rc=0 value=(vector,(0,1,";
    assert_eq!(hello_1(&odd, Some((1, 4))).unwrap().local_ranks, None);
    for place in [None, Some((4, 4)), Some((0, JOB_RANKS_MAX + 1))] {
        assert!(hello_1(&GREETING_1[..1], place).is_err());
    }
}

#[test]
fn damaged_values_are_refused() {
    for text in ["", "x00", "e0", "e0g", "m", "00"] {
        let answer = format!("cmd=get_result rc=0 value={text}");
        let mut script = GREETING_1.to_vec();
        script.push(("cmd=get kvsname=kvs_1 key=whimbrel-card-0-0", &answer));
        against(&script, Version::One, |socket| {
            let (mut pmi, _) = Pmi::hello(socket, Version::One, None, Some((1, 4))).unwrap();
            let error = pmi.get(0, "card", ANSWER_WITHIN).expect_err(text).to_string();
            assert!(error.contains("damaged"), "{error}");
        });
    }
    let mut value = Vec::new();
    let piece = format!("m{}", "00".repeat(8000));
    let count = (0..100).take_while(|_| append(&piece, &mut value).is_some()).count();
    assert_eq!(count, VALUE_BYTES_MAX / 8000, "a value that never ends is cut off");
}
