//! Functions on the stack, called from chunks.

use super::*;

fn state() -> Lua {
    let libraries = mlua::StdLib::TABLE | mlua::StdLib::STRING;
    Lua::new_with(libraries, mlua::LuaOptions::new()).expect("these libraries are built")
}

/// Runs a chunk in a fresh state in which `f` is the function.
fn eval<R: mlua::FromLuaMulti>(
    run: impl Fn(&mut Stack<'_>) -> Outcome + 'static,
    chunk: &str,
) -> mlua::Result<R> {
    let lua = state();
    lua.globals().set("f", function(&lua, run)?)?;
    lua.load(chunk).eval()
}

#[test]
fn arguments_are_read_as_they_are() {
    let describe = |stack: &mut Stack<'_>| {
        let text = (0..=stack.len() + 1).map(|index| format!("{:?};", stack.argument(index)));
        let text: String = text.collect();
        stack.push_bytes(text.as_bytes());
        Outcome::Results(1)
    };
    let text: String = eval(describe, "return f('a\\0b', 1.5, true, nil, {}, '7')").unwrap();
    let expected = "Nil;Bytes([97, 0, 98]);Number(1.5);Boolean(true);Nil;Other;Bytes([55]);Nil;";
    assert_eq!(text, expected);
}

#[test]
fn tables_are_built_from_elements_and_fields() {
    let build = |stack: &mut Stack<'_>| {
        stack.push_table(2, 1);
        stack.push_bytes(b"one");
        stack.set_element(1);
        stack.push_bytes(b"field");
        stack.push_number(2.0);
        stack.set_field();
        // Keys that Lua refuses.
        for key in [None, Some(f64::NAN)] {
            match key {
                Some(key) => stack.push_number(key),
                None => stack.push_nil(),
            }
            stack.push_boolean(true);
            stack.set_field();
        }
        Outcome::Results(1)
    };
    let chunk = "local t = f() local n = 0 for _ in pairs(t) do n = n + 1 end \
                 return t[1] .. t.field .. n";
    assert_eq!(eval::<String>(build, chunk).unwrap(), "one22");
}

#[test]
fn an_error_is_any_value_and_the_last_results_count() {
    let raise = |stack: &mut Stack<'_>| {
        stack.push_number(1.0);
        stack.push_boolean(true);
        match stack.argument(1) {
            Scalar::Nil => Outcome::Raise,
            _ => Outcome::Results(2),
        }
    };
    let chunk = "local ok, error = pcall(f) local a, b = f(0) \
                 return tostring(ok) .. tostring(error) .. a .. tostring(b)";
    assert_eq!(eval::<String>(raise, chunk).unwrap(), "falsetrue1true");
}

#[test]
fn many_values_find_room() {
    let many = |stack: &mut Stack<'_>| {
        (0..1000).for_each(|number| stack.push_number(f64::from(number)));
        (0..999).for_each(|_| stack.pop());
        Outcome::Results(1)
    };
    assert_eq!(eval::<f64>(many, "return f()").unwrap(), 0.0);
}

#[test]
fn code_is_run_and_its_errors_are_caught() {
    let run = |stack: &mut Stack<'_>| {
        stack.push_argument(2);
        stack.push_bytes(b"x");
        let has_returned = stack.run(1, 1);
        stack.push_boolean(has_returned);
        stack.push_copy(1);
        Outcome::Results(2)
    };
    let chunk = "local function handler(error) return 'caught ' .. error end \
                 local function body(x) if x then error(x, 0) end end \
                 local a, b = f(handler, function(x) return x .. 'y', 2 end) \
                 local c, d = f(handler, body) \
                 return tostring(a) .. b .. tostring(c) .. d";
    assert_eq!(eval::<String>(run, chunk).unwrap(), "truexyfalsecaught x");
}

#[test]
fn a_state_frees_what_its_functions_hold() {
    let held = std::rc::Rc::new(());
    let lua = state();
    let copy = held.clone();
    let f = function(&lua, move |_| {
        let _ = &copy;
        Outcome::Results(0)
    });
    drop(f.unwrap());
    drop(lua);
    assert_eq!(std::rc::Rc::strong_count(&held), 1);
}
